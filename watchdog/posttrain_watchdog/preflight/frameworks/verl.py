"""verl (hydra YAML and overrides); keys and defaults read from verl 0.5 to 0.9."""

from __future__ import annotations

from collections.abc import Mapping

from posttrain_watchdog.preflight.document import Document, Setting, numbers
from posttrain_watchdog.preflight.framework import Framework, Rename, Settings

_ROLLOUT = "actor_rollout_ref.rollout"
_CORRECTION = "algorithm.rollout_correction"


def adjust(settings: Settings, document: Document, versions: Mapping[str, str]) -> None:
    """`rollout_is` is level and switch in one; "lo_hi" as threshold means IcePop (mask both sides)."""
    level = settings.get("is_mode")
    settings["is_enabled"] = (
        Setting(level.key, bool(level.value), level.line, level.given)
        if level is not None
        else Setting(f"{_CORRECTION}.rollout_is", False, 0, given=False)
    )
    cap = settings.get("is_cap")
    if cap is not None and isinstance(cap.value, str) and len(bounds := numbers(cap.value)) == 2:
        settings["is_floor"] = Setting(cap.key, bounds[0], cap.line, cap.given)
        settings["is_cap"] = Setting(cap.key, bounds[1], cap.line, cap.given)
        settings["is_mode"] = Setting(cap.key, "icepop", cap.line, cap.given)
    engine = settings.get("engine_name")
    if engine is not None and engine.value == "sglang":
        settings["logprobs_mode"] = Setting(engine.key, "sglang", engine.line, given=False)


FRAMEWORK = Framework(
    name="verl",
    title="verl",
    package="verl",
    read="0.9.1",
    role="trainer",
    programs=(r"verl\.", r"main_ppo"),
    markers=(
        f"{_ROLLOUT}.name",
        f"{_ROLLOUT}.temperature",
        f"{_ROLLOUT}.gpu_memory_utilization",
        f"{_ROLLOUT}.n",
        f"{_ROLLOUT}.calculate_log_probs",
        "algorithm.adv_estimator",
        f"{_CORRECTION}.rollout_is",
        "actor_rollout_ref.model.path",
        "algorithm.rollout_is",
    ),
    keys={
        "temperature": (f"{_ROLLOUT}.temperature",),
        "top_p": (f"{_ROLLOUT}.top_p",),
        "top_k": (f"{_ROLLOUT}.top_k",),
        "repetition_penalty": (f"{_ROLLOUT}.repetition_penalty",),
        "logprobs_mode": (f"{_ROLLOUT}.logprobs_mode", f"{_ROLLOUT}.engine_kwargs.vllm.logprobs_mode"),
        "engine_logprobs": (f"{_ROLLOUT}.calculate_log_probs",),
        "is_mode": (f"{_CORRECTION}.rollout_is", "algorithm.rollout_is_level", "algorithm.rollout_is"),
        "is_cap": (f"{_CORRECTION}.rollout_is_threshold", "algorithm.rollout_is_threshold"),
        "bypass": (f"{_CORRECTION}.bypass_mode",),
        "engine_name": (f"{_ROLLOUT}.name",),
        "gpu_memory": (f"{_ROLLOUT}.gpu_memory_utilization",),
        "engine_dtype": (f"{_ROLLOUT}.dtype",),
        "quantization": (f"{_ROLLOUT}.quantization",),
        "kv_cache_dtype": (f"{_ROLLOUT}.engine_kwargs.vllm.kv_cache_dtype",),
        "stats_disabled": (f"{_ROLLOUT}.disable_log_stats",),
        "tensor_parallel": (f"{_ROLLOUT}.tensor_model_parallel_size",),
        "max_completion": ("data.max_response_length",),
        "max_prompt": ("data.max_prompt_length",),
        "steps_per_rollout": ("actor_rollout_ref.actor.ppo_epochs",),
        "timeout": ("actor_rollout_ref.nccl_timeout",),
        "router_replay": (
            "actor_rollout_ref.actor.megatron.router_replay.mode",
            f"{_ROLLOUT}.enable_rollout_routing_replay",
        ),
        "model": ("actor_rollout_ref.model.path",),
        "enforce_eager": (f"{_ROLLOUT}.enforce_eager",),
    },
    defaults={
        "temperature": (("0", 1.0),),
        "top_p": (("0", 1.0),),
        "top_k": (("0", -1),),
        "logprobs_mode": (("0", "raw_logprobs"), ("0.7", "processed_logprobs")),
        "engine_logprobs": (("0", False), ("0.9", True)),
        "is_cap": (("0", 2.0),),
        "gpu_memory": (("0", 0.5),),
        "stats_disabled": (("0", True),),
        "router_replay": (("0", "disabled"),),
        "max_completion": (("0", 512),),
    },
    modes={
        "token": ("token", "truncate"),
        "sequence": ("sequence", "truncate"),
        "icepop": ("token", "mask"),
        "True": ("token", "truncate"),
        "geometric": ("sequence", "truncate"),
    },
    renames=(
        Rename(
            "algorithm.rollout_is",
            f"{_CORRECTION}.rollout_is",
            "0.6.1",
            removed=True,
            note="now null, token or sequence",
        ),
        Rename("algorithm.rollout_is_level", f"{_CORRECTION}.rollout_is", "0.6.1", removed=True),
        Rename("algorithm.rollout_is_threshold", f"{_CORRECTION}.rollout_is_threshold", "0.6.1", removed=True),
        Rename("algorithm.rollout_is_veto_threshold", f"{_CORRECTION}.rollout_rs_threshold", "0.6.1", removed=True),
        Rename(
            f"{_CORRECTION}.rollout_token_veto_threshold", f"{_CORRECTION}.rollout_rs_threshold", "0.7.1", removed=True
        ),
        Rename(
            f"{_CORRECTION}.rollout_rs_threshold_lower",
            f"{_CORRECTION}.rollout_rs_threshold",
            "0.7.1",
            removed=True,
            note='give both bounds as "lo_hi"',
        ),
        Rename(
            "actor_rollout_ref.actor.tis_imp_ratio_cap",
            f"{_CORRECTION}.rollout_is_threshold",
            "0.6",
            removed=True,
            note="the old key was never in a release",
        ),
    ),
    known_prefixes=(f"{_CORRECTION}.",),
    known_keys=tuple(
        f"{_CORRECTION}.{k}"
        for k in (
            "rollout_is",
            "rollout_is_threshold",
            "rollout_rs",
            "rollout_rs_threshold",
            "bypass_mode",
            "loss_type",
            "rollout_is_batch_normalize",
            "rollout_rs_threshold_lower",
            "rollout_token_veto_threshold",
        )
    ),
    adjust=adjust,
    builtin="`algorithm.rollout_correction`: token or sequence (product) truncation, IcePop bounds since 0.9, "
    "rejection; off by default",
    own_sampler="Nothing with vLLM or SGLang rollouts; `calculate_log_probs: true` up to 0.8",
    logged="`rollout_corr/kl` = k1, `rollout_corr/k3_kl`, `rollout_corr/rollout_is_*` clamped in token mode; "
    "`training/rollout_probs_diff_*` are differences of probabilities",
)
