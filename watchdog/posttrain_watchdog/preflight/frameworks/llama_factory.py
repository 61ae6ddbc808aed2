"""LLaMA-Factory's PPO: rollouts by the trainer's own generate, no inference engine; read at 0.9.5."""

from __future__ import annotations

from posttrain_watchdog.preflight.framework import Framework

FRAMEWORK = Framework(
    name="llama_factory",
    title="LLaMA-Factory (PPO)",
    package="llamafactory",
    read="0.9.5",
    role="trainer",
    programs=(r"llamafactory",),
    markers=("stage", "finetuning_type", "ppo_score_norm", "template"),
    keys={
        "temperature": ("temperature",),
        "top_p": ("top_p",),
        "top_k": ("top_k",),
        "repetition_penalty": ("repetition_penalty",),
        "max_completion": ("max_new_tokens",),
        "timeout": ("ddp_timeout",),
        "train_on_prompt": ("train_on_prompt",),
        "model": ("model_name_or_path",),
        "nan_filter": ("logging_nan_inf_filter",),
        "stage": ("stage",),
    },
    defaults={
        "temperature": (("0", 0.95),),
        "top_p": (("0", 0.7),),
        "top_k": (("0", 50),),
        "repetition_penalty": (("0", 1.0),),
        "train_on_prompt": (("0", False),),
    },
    engine="transformers generate",
    scales_by_temperature=False,
    needs_correction=False,
    builtin="None: rollouts come from the trainer's own model, so there is no engine to correct for",
    own_sampler="A sampler of your own if rollouts are to come from vLLM or SGLang; the sampling defaults (T 0.95, "
    "top_p 0.7, "
    "top_k 50) are not applied in the loss",
    logged="Nothing of the mismatch, no KL and no gradient norm in `trainer_log.jsonl`; take `trainer_state.json`",
)
