"""AReaL (YAML); read at the state of May 2026."""

from __future__ import annotations

from posttrain_watchdog.preflight.framework import Framework, Rename

FRAMEWORK = Framework(
    name="areal",
    title="AReaL",
    package="areal",
    read="git 4aef98d8",
    role="trainer",
    programs=(r"areal",),
    markers=("actor.use_decoupled_loss", "rollout.max_head_offpolicyness", "gconfig.max_new_tokens"),
    keys={
        "temperature": ("gconfig.temperature",),
        "top_p": ("gconfig.top_p",),
        "top_k": ("gconfig.top_k",),
        "trainer_temperature": ("actor.temperature",),
        "is_enabled": ("actor.use_decoupled_loss",),
        "is_cap": ("actor.rejection_sampling.upper",),
        "is_floor": ("actor.rejection_sampling.lower",),
        "max_lag": ("rollout.max_head_offpolicyness",),
        "max_completion": ("gconfig.max_new_tokens",),
        "gpu_memory": ("vllm.gpu_memory_utilization", "sglang.mem_fraction_static"),
        "engine_dtype": ("vllm.dtype", "sglang.dtype"),
        "dtype": ("actor.dtype",),
        "logprobs_mode": ("vllm.logprobs_mode",),
        "model": ("actor.path",),
    },
    defaults={
        "temperature": (("0", 1.0),),
        "top_p": (("0", 1.0),),
        "logprobs_mode": (("0", "raw_logprobs"),),
        "is_enabled": (("0", False),),
        "is_mode": (("0", "mask"),),
        "is_cap": (("0", 5.0),),
    },
    modes={"mask": ("token", "mask"), "clamp": ("token", "truncate")},
    renames=(
        Rename("actor.behave_imp_weight_cap", "actor.rejection_sampling.upper", "0", removed=True, note="raises"),
        Rename("actor.behave_imp_weight_mode", "actor.rejection_sampling.action", "0", removed=True, note="raises"),
    ),
    known_prefixes=("actor.rejection_sampling.",),
    known_keys=tuple(f"actor.rejection_sampling.{k}" for k in ("level", "action", "metric", "agg", "upper", "lower")),
    builtin="`actor.use_decoupled_loss` with `actor.rejection_sampling` (mask or clamp, cap 5.0)",
    own_sampler="With vLLM: `logprobs_mode` is set nowhere, so logprobs are raw; with SGLang nothing",
    logged="`behave_approx_kl` = trainer − engine (opposite sign), over the tokens that survive the filter",
)
