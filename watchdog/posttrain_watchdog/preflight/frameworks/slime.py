"""slime (Megatron with SGLang); arguments read at the state of mid 2026."""

from __future__ import annotations

from collections.abc import Mapping

from posttrain_watchdog.preflight.document import Document, Setting, number, truth
from posttrain_watchdog.preflight.framework import Framework, Settings


def adjust(settings: Settings, document: Document, versions: Mapping[str, str]) -> None:
    """Either kind of replay serves; metrics alone do not correct."""
    for name in ("use_routing_replay", "use_rollout_routing_replay"):
        given = document.settings.get(name)
        if given is not None and truth(given.value):
            settings["router_replay"] = given
    minutes = settings.get("timeout")
    if minutes is not None and (value := number(minutes.value)) is not None:
        settings["timeout"] = Setting(minutes.key, value * 60, minutes.line)


FRAMEWORK = Framework(
    name="slime",
    title="slime",
    package="slime",
    read="git 624b824a",
    role="trainer",
    programs=(r"slime",),
    markers=(
        "use_tis",
        "rollout_temperature",
        "rollout_num_gpus",
        "rollout_batch_size_per",
        "sglang_mem_fraction_static",
        "get_mismatch_metrics",
        "rollout_max_response_len",
        "use_rollout_logprobs",
    ),
    dashes=True,
    keys={
        "temperature": ("rollout_temperature",),
        "top_p": ("rollout_top_p",),
        "top_k": ("rollout_top_k",),
        "is_enabled": ("use_tis",),
        "is_cap": ("tis_clip",),
        "is_floor": ("tis_clip_low",),
        "bypass": ("use_rollout_logprobs",),
        "gpu_memory": ("sglang_mem_fraction_static",),
        "max_completion": ("rollout_max_response_len",),
        "router_replay": ("use_rollout_routing_replay", "use_routing_replay"),
        "timeout": ("distributed_timeout_minutes",),
        "model": ("hf_checkpoint", "model"),
        "mismatch_metrics": ("get_mismatch_metrics",),
        "quantization": ("sglang_quantization",),
        "colocate": ("colocate",),
    },
    defaults={
        "temperature": (("0", 1.0),),
        "top_p": (("0", 1.0),),
        "top_k": (("0", -1),),
        "logprobs_mode": (("0", "sglang"),),
        "is_enabled": (("0", False),),
        "is_mode": (("0", "token_truncate"),),
        "is_cap": (("0", 2.0),),
        "is_floor": (("0", 0.0),),
        "router_replay": (("0", False),),
    },
    modes={"token_truncate": ("token", "truncate")},
    engine="SGLang",
    truncates=True,
    adjust=adjust,
    builtin="`--use-tis` truncates per token (cap 2.0); sequence variants by `--custom-tis-function-path`; top-p "
    "is replayed by its patched SGLang",
    own_sampler="Nothing: SGLang returns log_softmax(logits / T)",
    logged="`train/tis` raw mean, `train/train_rollout_logprob_abs_diff`; `train/ois` is the PPO ratio and not the "
    "rollout's",
)
