"""vLLM's command line (vllm serve, trl vllm-serve); behaviour read from 0.8 to 0.32."""

from __future__ import annotations

from collections.abc import Mapping

from posttrain_watchdog.preflight.document import Document, Setting
from posttrain_watchdog.preflight.framework import Framework, Settings, at_least


def adjust(settings: Settings, document: Document, versions: Mapping[str, str]) -> None:
    """`trl vllm-serve` sets the mode by itself; the model may be the first word after `serve`."""
    words = document.program.split()
    if "vllm-serve" in words:
        processed = at_least(versions.get("trl", "1.16.0"), "0.28")
        settings["logprobs_mode"] = Setting(
            "trl vllm-serve", "processed_logprobs" if processed else "raw_logprobs", 0, given=False
        )
        settings["served_by_trl"] = Setting("trl vllm-serve", True, document.line)
    elif "serve" in words and words[-1] != "serve" and "model" not in settings:
        settings["model"] = Setting("model", words[words.index("serve") + 1], document.line)


FRAMEWORK = Framework(
    name="vllm",
    title="vLLM",
    package="vllm",
    read="0.32.0",
    role="engine",
    programs=(r"vllm serve", r"vllm\.entrypoints", r"trl vllm-serve"),
    markers=(),
    dashes=True,
    keys={
        "logprobs_mode": ("logprobs_mode",),
        "max_logprobs": ("max_logprobs",),
        "engine_dtype": ("dtype",),
        "quantization": ("quantization", "q"),
        "kv_cache_dtype": ("kv_cache_dtype",),
        "gpu_memory": ("gpu_memory_utilization",),
        "engine_max_len": ("max_model_len",),
        "prefix_caching": ("enable_prefix_caching",),
        "enforce_eager": ("enforce_eager",),
        "generation_config": ("generation_config",),
        "override_generation_config": ("override_generation_config",),
        "speculative": ("speculative_config", "speculative_model"),
        "router_replay": ("enable_return_routed_experts",),
        "tensor_parallel": ("tensor_parallel_size", "tp"),
        "stats_disabled": ("disable_log_stats",),
        "model": ("model",),
    },
    defaults={
        "logprobs_mode": (("0", "processed_logprobs"), ("0.8", "raw_logprobs")),
        "max_logprobs": (("0", 20),),
        "engine_dtype": (("0", "auto"),),
        "gpu_memory": (("0", 0.9),),
        "generation_config": (("0", "vllm"), ("0.9", "auto")),
        "stats_disabled": (("0", False),),
    },
    engine="vLLM",
    needs_correction=False,
    adjust=adjust,
    builtin="Not a trainer: the sampler",
    own_sampler="`--logprobs-mode processed_logprobs` (default raw), `--generation-config vllm`",
    logged="`/metrics` with latencies, cache use and preemptions; off with `--disable-log-stats`",
)
