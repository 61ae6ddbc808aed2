"""SkyRL (YAML and hydra overrides); read at the state of mid 2026."""

from __future__ import annotations

from collections.abc import Mapping

from posttrain_watchdog.preflight.document import Document, Setting
from posttrain_watchdog.preflight.framework import Framework, Rename, Settings

_C = "trainer.algorithm.off_policy_correction"
_G = "generator"


def adjust(settings: Settings, document: Document, versions: Mapping[str, str]) -> None:
    """The ratio type is the switch."""
    kind = settings.get("is_mode")
    settings["is_enabled"] = Setting(
        kind.key if kind else f"{_C}.tis_ratio_type", bool(kind and kind.value), kind.line if kind else 0, bool(kind)
    )


FRAMEWORK = Framework(
    name="skyrl",
    title="SkyRL",
    package="skyrl",
    read="git a9564572",
    role="trainer",
    programs=(r"skyrl",),
    markers=(
        f"{_C}.tis_ratio_type",
        f"{_G}.sampling_params.temperature",
        "trainer.algorithm.use_tis",
        f"{_G}.inference_engine.backend",
    ),
    keys={
        "temperature": (f"{_G}.sampling_params.temperature",),
        "top_p": (f"{_G}.sampling_params.top_p",),
        "top_k": (f"{_G}.sampling_params.top_k",),
        "min_p": (f"{_G}.sampling_params.min_p",),
        "engine_logprobs": (f"{_G}.sampling_params.logprobs",),
        "trainer_temperature": ("trainer.algorithm.temperature",),
        "logprobs_mode": (
            f"{_G}.inference_engine.engine_init_kwargs.logprobs_mode",
            f"{_G}.engine_init_kwargs.logprobs_mode",
        ),
        "is_mode": (f"{_C}.tis_ratio_type",),
        "is_cap": (f"{_C}.token_tis_ratio_clip_high", f"{_C}.sequence_tis_ratio_clip_high"),
        "gpu_memory": (f"{_G}.inference_engine.gpu_memory_utilization", f"{_G}.gpu_memory_utilization"),
        "max_completion": (f"{_G}.sampling_params.max_generate_length",),
        "router_replay": (f"{_G}.inference_engine.enable_return_routed_experts",),
        "model": ("trainer.policy.model.path",),
    },
    defaults={
        "temperature": (("0", 1.0),),
        "top_p": (("0", 1.0),),
        "top_k": (("0", -1),),
        "logprobs_mode": (("0", "raw_logprobs"),),
        "is_cap": (("0", 2.0),),
        "router_replay": (("0", False),),
    },
    modes={"token": ("token", "truncate"), "sequence": ("sequence", "truncate")},
    renames=(
        Rename(
            "trainer.algorithm.use_tis", f"{_C}.tis_ratio_type", "0", removed=True, note="now null, token or sequence"
        ),
        Rename("trainer.algorithm.tis_imp_ratio_cap", f"{_C}.token_tis_ratio_clip_high", "0", removed=True),
    ),
    adjust=adjust,
    builtin="`off_policy_correction`: token or sequence truncation, several masks; off by default",
    own_sampler="`logprobs_mode` is set nowhere: give it in `engine_init_kwargs`, or stay at temperature 1",
    logged="`is_ratio_mean` raw; `is_ratio_min` and `_std` contain masked zeros",
)
