"""TRL's GRPOTrainer (and RLOO) with vLLM; keys and defaults read from TRL 0.21 to 1.16."""

from __future__ import annotations

from collections.abc import Mapping

from posttrain_watchdog.preflight.document import Document, Setting, truth
from posttrain_watchdog.preflight.framework import Framework, Rename, Settings, at_least


def adjust(settings: Settings, document: Document, versions: Mapping[str, str]) -> None:
    """Server mode has its own history of the logprobs mode; without vLLM there is no second side."""
    version = versions.get("trl", FRAMEWORK.read)
    use = settings.get("use_engine")
    if use is not None and truth(use.value) is False:
        settings["needs_correction"] = Setting("use_vllm", False, use.line, use.given)
    mode = settings.get("engine_mode")
    if mode is not None and mode.value == "server":
        processed = at_least(version, "0.28")
        settings["logprobs_mode"] = Setting(
            "vllm_mode", "processed_logprobs" if processed else "raw_logprobs", mode.line, given=False
        )
        settings.pop("gpu_memory", None)
    if "is_cap" not in settings and (old := document.settings.get("vllm_importance_sampling_cap")):
        settings["is_cap"] = old


FRAMEWORK = Framework(
    name="trl",
    title="TRL (GRPO)",
    package="trl",
    read="1.16.0",
    role="trainer",
    programs=(r"\btrl (?:grpo|rloo)\b", r"GRPOConfig", r"RLOOConfig", r"\bgrpo\w*\.py\b"),
    markers=(
        "use_vllm",
        "vllm_mode",
        "vllm_importance_sampling_correction",
        "vllm_importance_sampling_mode",
        "vllm_importance_sampling_cap",
        "vllm_importance_sampling_clip_max",
        "vllm_gpu_memory_utilization",
    ),
    keys={
        "temperature": ("generation_kwargs.temperature", "temperature"),
        "top_p": ("generation_kwargs.top_p", "top_p"),
        "top_k": ("generation_kwargs.top_k", "top_k"),
        "min_p": ("generation_kwargs.min_p", "min_p"),
        "repetition_penalty": ("generation_kwargs.repetition_penalty", "repetition_penalty"),
        "presence_penalty": ("generation_kwargs.presence_penalty",),
        "frequency_penalty": ("generation_kwargs.frequency_penalty",),
        "is_enabled": ("vllm_importance_sampling_correction",),
        "is_mode": ("vllm_importance_sampling_mode",),
        "is_cap": ("vllm_importance_sampling_clip_max", "vllm_importance_sampling_cap"),
        "is_floor": ("vllm_importance_sampling_clip_min",),
        "use_engine": ("use_vllm",),
        "engine_mode": ("vllm_mode",),
        "gpu_memory": ("vllm_gpu_memory_utilization",),
        "tensor_parallel": ("vllm_tensor_parallel_size",),
        "max_completion": ("max_completion_length",),
        "max_prompt": ("max_prompt_length",),
        "steps_per_rollout": ("num_iterations",),
        "timeout": ("ddp_timeout",),
        "nan_filter": ("logging_nan_inf_filter",),
        "sequence_objective": ("importance_sampling_level",),
        "model": ("model_name_or_path", "model"),
        "fp16": ("fp16",),
        "bf16": ("bf16",),
        "max_grad_norm": ("max_grad_norm",),
    },
    defaults={
        "temperature": (("0", 1.0),),
        "top_p": (("0", 1.0),),
        "top_k": (("0", 0),),
        "repetition_penalty": (("0", 1.0),),
        "logprobs_mode": (("0", "raw_logprobs"), ("0.24", "processed_logprobs")),
        "is_enabled": (("0", False), ("0.23", True)),
        "is_mode": (("0", "token_truncate"), ("0.26", "sequence_mask")),
        "is_cap": (("0", 2.0), ("0.26", 3.0)),
        "use_engine": (("0", False),),
        "engine_mode": (("0", "server"), ("1.0", "colocate")),
        "gpu_memory": (("0", 0.3),),
        "max_completion": (("0", 256),),
    },
    modes={
        "token_truncate": ("token", "truncate"),
        "token_mask": ("token", "mask"),
        "sequence_truncate": ("sequence", "truncate"),
        "sequence_mask": ("sequence", "mask"),
    },
    renames=(Rename("vllm_importance_sampling_cap", "vllm_importance_sampling_clip_max", "1.6"),),
    known_prefixes=("vllm_importance_sampling_",),
    known_keys=(
        "vllm_importance_sampling_correction",
        "vllm_importance_sampling_mode",
        "vllm_importance_sampling_cap",
        "vllm_importance_sampling_clip_max",
        "vllm_importance_sampling_clip_min",
    ),
    adjust=adjust,
    builtin="Truncated or masked importance sampling per token or per sequence (product), on by default since 0.23; "
    "default mode `sequence_mask` with cap 3.0 since 0.26",
    own_sampler="Nothing in colocate mode. A server of your own needs `--logprobs-mode processed_logprobs`",
    logged="`sampling/importance_sampling_ratio/*` after clamp or mask, `sampling/sampling_logp_difference/*` = |d|",
)
