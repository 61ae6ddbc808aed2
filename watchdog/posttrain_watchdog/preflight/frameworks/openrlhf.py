"""OpenRLHF (PPO with Ray and vLLM); arguments read at 0.8 to 0.11."""

from __future__ import annotations

from collections.abc import Mapping

from posttrain_watchdog.preflight.document import Document, Setting, numbers, truth
from posttrain_watchdog.preflight.framework import Framework, Rename, Settings

_A = "algo.advantage"


def adjust(settings: Settings, document: Document, versions: Mapping[str, str]) -> None:
    """The engine gets processed_logprobs only together with the correction; two bounds mean floor and cap."""
    enabled = settings.get("is_enabled")
    on = enabled is not None and truth(enabled.value) is True
    key = enabled.key if enabled else f"{_A}.is_correction_enable"
    settings["logprobs_mode"] = Setting(key, "processed_logprobs" if on else "raw_logprobs", 0, given=False)
    if not on:
        # raw values are computed and never used: nothing in the loss depends on them
        settings["logprobs_unused"] = Setting(key, True, 0, given=False)
    cap = settings.get("is_cap")
    if cap is not None and len(bounds := numbers(cap.value)) == 2:
        settings["is_floor"] = Setting(cap.key, bounds[0], cap.line, cap.given)
        settings["is_cap"] = Setting(cap.key, bounds[1], cap.line, cap.given)


FRAMEWORK = Framework(
    name="openrlhf",
    title="OpenRLHF",
    package="openrlhf",
    read="0.11.0",
    role="trainer",
    programs=(r"openrlhf",),
    markers=("enable_vllm_is_correction", "vllm_num_engines", f"{_A}.is_correction_enable"),
    keys={
        "temperature": ("rollout.temperature", "temperature"),
        "top_p": ("rollout.top_p", "top_p"),
        "is_enabled": (f"{_A}.is_correction_enable", "enable_vllm_is_correction"),
        "is_mode": (f"{_A}.is_correction_type", "vllm_is_correction_type"),
        "is_cap": (f"{_A}.is_correction_threshold", "vllm_is_truncated_threshold"),
        "gpu_memory": ("vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization"),
        "colocate": ("train.colocate_all", "colocate_all_models"),
        "max_completion": ("rollout.max_new_tokens", "generate_max_len"),
        "max_prompt": ("data.prompt_max_len", "prompt_max_len"),
        "model": ("actor.model_name_or_path", "pretrain"),
        "enforce_eager": ("vllm.enforce_eager", "enforce_eager"),
    },
    defaults={
        "temperature": (("0", 1.0),),
        "top_p": (("0", 1.0),),
        "is_enabled": (("0", False),),
        "is_mode": (("0", "tis"),),
        "is_cap": (("0", 2.0), ("0.9", "0.5 5.0")),
        "gpu_memory": (("0", 0.95),),
        "max_completion": (("0", 1024),),
    },
    modes={"tis": ("token", "truncate"), "icepop": ("token", "mask"), "seq-mask-tis": ("token", "truncate")},
    renames=(
        Rename("enable_vllm_is_correction", f"{_A}.is_correction_enable", "0.11", removed=True),
        Rename("vllm_is_truncated_threshold", f"{_A}.is_correction_threshold", "0.11", removed=True),
        Rename("vllm_is_correction_type", f"{_A}.is_correction_type", "0.11", removed=True),
    ),
    known_prefixes=(f"{_A}.is_correction_",),
    known_keys=tuple(f"{_A}.is_correction_{k}" for k in ("enable", "threshold", "type")),
    adjust=adjust,
    builtin="tis, icepop or seq-mask-tis on tokens; off by default",
    own_sampler="vLLM >= 0.10.2 (its own check lets 0.10.1 pass, whose processed logprobs lack temperature)",
    logged="`vllm_kl` = mean(engine − trainer) only with the correction on; `ppo_kl` is old − current policy",
)
