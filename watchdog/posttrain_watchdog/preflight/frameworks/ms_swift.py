"""ms-swift (swift rlhf --rlhf_type grpo); keys and defaults read from ms-swift 3.12 to 4.6."""

from __future__ import annotations

from collections.abc import Mapping

from posttrain_watchdog.preflight.document import Document, Setting, truth
from posttrain_watchdog.preflight.framework import Framework, Settings, at_least


def adjust(settings: Settings, document: Document, versions: Mapping[str, str]) -> None:
    """A mode is the switch; processed logprobs need vLLM >= 0.10.2, older ones switch the feature off."""
    mode = settings.get("is_mode")
    settings["is_enabled"] = Setting(
        mode.key if mode else "rollout_importance_sampling_mode",
        bool(mode and mode.value),
        mode.line if mode else 0,
        given=bool(mode and mode.given),
    )
    vllm = versions.get("vllm")
    if vllm is not None and not at_least(vllm, "0.10.2"):
        settings["logprobs_mode"] = Setting("vllm", "raw_logprobs", 0, given=False)
    use = settings.get("use_engine")
    if use is not None and truth(use.value) is False:
        settings["needs_correction"] = Setting(use.key, False, use.line, use.given)


FRAMEWORK = Framework(
    name="ms_swift",
    title="ms-swift (GRPO)",
    package="ms-swift",
    read="4.6.0",
    role="trainer",
    programs=(r"\bswift rlhf\b", r"megatron rlhf", r"RLHFArguments"),
    markers=("rlhf_type", "rollout_importance_sampling_mode", "log_rollout_offpolicy_metrics"),
    keys={
        "temperature": ("temperature",),
        "top_p": ("top_p",),
        "top_k": ("top_k",),
        "repetition_penalty": ("repetition_penalty",),
        "is_mode": ("rollout_importance_sampling_mode",),
        "is_cap": ("rollout_importance_sampling_threshold",),
        "use_engine": ("use_vllm",),
        "engine_mode": ("vllm_mode",),
        "gpu_memory": ("vllm_gpu_memory_utilization",),
        "max_completion": ("max_completion_length",),
        "max_prompt": ("max_length",),
        "steps_per_rollout": ("num_iterations",),
        "timeout": ("ddp_timeout",),
        "mismatch_metrics": ("log_rollout_offpolicy_metrics",),
        "router_replay": ("router_replay_mode",),
        "model": ("model",),
        "nan_filter": ("logging_nan_inf_filter",),
        "engine_dtype": ("vllm_dtype",),
        "quantization": ("vllm_quantization",),
        "dtype": ("torch_dtype",),
    },
    defaults={
        "logprobs_mode": (("0", "processed_logprobs"),),
        "is_cap": (("0", 2.0),),
        "use_engine": (("0", False),),
        "mismatch_metrics": (("0", False),),
        "router_replay": (("0", "disabled"),),
        "max_completion": (("0", 512),),
    },
    modes={
        "token_truncate": ("token", "truncate"),
        "token_mask": ("token", "mask"),
        "sequence_truncate": ("sequence", "truncate"),
        "sequence_mask": ("sequence", "mask"),
    },
    known_prefixes=("rollout_importance_sampling_",),
    known_keys=("rollout_importance_sampling_mode", "rollout_importance_sampling_threshold"),
    sequence_mean="geometric",
    adjust=adjust,
    builtin="The four modes of TRL with a geometric mean per sequence; off by default",
    own_sampler="vLLM >= 0.10.2, otherwise the feature is disabled",
    logged="`rollout_correction/*` only with a mode or `log_rollout_offpolicy_metrics true`; `chi2_seq` is geometric",
)
