"""SGLang's command line (python -m sglang.launch_server); behaviour read from 0.4.9 to 0.5.23."""

from __future__ import annotations

from collections.abc import Mapping

from posttrain_watchdog.preflight.document import Document, Setting, truth
from posttrain_watchdog.preflight.framework import Framework, Settings


def adjust(settings: Settings, document: Document, versions: Mapping[str, str]) -> None:
    """An environment variable makes the returned logprobs unscaled."""
    for name in ("SGLANG_RETURN_ORIGINAL_LOGPROB", "RETURN_ORIGINAL_LOGPROB"):
        given = document.environment.get(name)
        if given is not None and truth(given.value):
            settings["logprobs_mode"] = Setting(name, "raw_logprobs", given.line)


FRAMEWORK = Framework(
    name="sglang",
    title="SGLang",
    package="sglang",
    read="0.5.23",
    role="engine",
    programs=(r"sglang\.launch_server", r"sglang serve"),
    markers=(),
    dashes=True,
    keys={
        "engine_dtype": ("dtype",),
        "quantization": ("quantization",),
        "kv_cache_dtype": ("kv_cache_dtype",),
        "gpu_memory": ("mem_fraction_static",),
        "engine_max_len": ("context_length",),
        "speculative": ("speculative_algorithm",),
        "metrics": ("enable_metrics",),
        "tensor_parallel": ("tp_size", "tp"),
        "model": ("model_path", "model"),
        "sampling_defaults": ("sampling_defaults",),
        "prefix_caching_off": ("disable_radix_cache",),
    },
    defaults={
        "logprobs_mode": (("0", "sglang"),),
        "engine_dtype": (("0", "auto"),),
        "metrics": (("0", False),),
    },
    engine="SGLang",
    needs_correction=False,
    adjust=adjust,
    builtin="Not a trainer: the sampler",
    own_sampler="Nothing: it returns log_softmax(logits / T); top-k, top-p and min-p are not in it. "
    "`SGLANG_RETURN_ORIGINAL_LOGPROB` must be unset",
    logged="`/metrics` only with `--enable-metrics`",
)
