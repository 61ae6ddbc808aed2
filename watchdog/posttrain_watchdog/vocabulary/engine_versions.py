"""What the logprobs of an engine contain, by engine, version and mode; and which mode a framework sets, by version.

Promises: data with its source, and look-ups over it. Never guesses: a version that no row covers gives None.
Read from the sources named in each row; a boundary lies between versions that were read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Semantics:
    """What the reported number of a sampled token is."""

    normalised: bool
    """a log-probability; False: a logit"""
    penalties: bool
    """after penalties, bad words, bias and grammar"""
    temperature: bool
    """after division by the temperature"""
    truncation: bool
    """renormalised over what top-k, top-p and min-p kept"""
    source: str

    def is_sampling_distribution(self, temperature: float, truncated: bool = False, penalised: bool = False) -> bool:
        """Whether tokens sampled with these settings were drawn from the distribution that is reported."""
        return (
            self.normalised
            and (self.temperature or temperature == 1.0)
            and (self.truncation or not truncated)
            and (self.penalties or not penalised)
        )


@dataclass(frozen=True, slots=True)
class _Era:
    engine: str
    since: Version
    """first version; the next row of the same engine and mode ends it"""
    mode: str
    """"*" stands for every mode, "" for an engine without modes"""
    says: Semantics


_V0 = "vLLM 0.8.5 model_executor/layers/sampler.py (V0)"
_V1 = "vLLM 0.8.5, 0.9.2 v1/sample/sampler.py"
_HALF = "vLLM 0.10.0, 0.10.1.1 v1/sample/sampler.py L60-66"
_FULL = "vLLM 0.10.2 to 0.32.0 v1/sample/sampler.py"
_SGL = "SGLang 0.4.9 to 0.5.23 srt/layers/sampler.py"

_ERAS: tuple[_Era, ...] = (
    _Era("vllm", (0,), "*", Semantics(True, True, True, True, _V0)),
    _Era("vllm", (0, 8), "raw_logprobs", Semantics(True, False, False, False, _V1)),
    _Era("vllm", (0, 10), "processed_logprobs", Semantics(True, True, False, False, _HALF)),
    _Era("vllm", (0, 10, 2), "processed_logprobs", Semantics(True, True, True, True, _FULL)),
    _Era("vllm", (0, 10), "raw_logits", Semantics(False, False, False, False, _HALF)),
    _Era("vllm", (0, 10), "processed_logits", Semantics(False, True, False, False, _HALF)),
    _Era("vllm", (0, 10, 2), "processed_logits", Semantics(False, True, True, True, _FULL)),
    _Era("sglang", (0,), "", Semantics(True, True, True, False, _SGL)),
    _Era("sglang", (0, 5, 2), "original", Semantics(True, True, False, False, _SGL)),
)
"""SGLang's "original" is SGLANG_RETURN_ORIGINAL_LOGPROB=1 (RETURN_ORIGINAL_LOGPROB in 0.5.2). Greedy: unscaled."""


@dataclass(frozen=True, slots=True)
class FrameworkDefault:
    """Which mode a framework asks its engine for, and whether its trainer divides logits by the temperature."""

    framework: str
    since: Version
    setting: str
    """colocate, server or any"""
    mode: str
    trainer_scales: bool
    source: str


FRAMEWORKS: tuple[FrameworkDefault, ...] = (
    FrameworkDefault("trl", (0, 18), "any", "raw_logprobs", True, "TRL 0.23.1 grpo_trainer.py"),
    FrameworkDefault("trl", (0, 24), "colocate", "processed_logprobs", True, "TRL 0.24.0 grpo_trainer.py"),
    FrameworkDefault("trl", (0, 28), "server", "processed_logprobs", True, "TRL 0.28.0 scripts/vllm_serve.py"),
    FrameworkDefault("verl", (0, 5), "any", "raw_logprobs", True, "verl 0.6.1: key absent, vLLM's default"),
    FrameworkDefault("verl", (0, 7), "any", "processed_logprobs", True, "verl 0.7.0 config/rollout/rollout.yaml"),
    FrameworkDefault("ms_swift", (3, 12), "any", "processed_logprobs", True, "ms-swift 3.12.6: if vLLM >= 0.10.2"),
    FrameworkDefault("openrlhf", (0, 8), "any", "raw_logprobs", True, "OpenRLHF: without is_correction_enable"),
    FrameworkDefault("openrlhf", (0, 9), "correction", "processed_logprobs", True, "OpenRLHF 0.11.0"),
    FrameworkDefault("nemo_rl", (0, 3), "any", "raw_logprobs", True, "NeMo-RL vllm_worker.py:599: key absent"),
    FrameworkDefault("nemo_rl", (0, 3), "recipe", "processed_logprobs", True, "NeMo-RL grpo_math_1B.yaml:415"),
    FrameworkDefault("prime_rl", (0,), "any", "processed_logprobs", True, "prime-rl 559b4477 inference defaults"),
    FrameworkDefault("areal", (0,), "any", "raw_logprobs", True, "AReaL 4aef98d8: set nowhere"),
    FrameworkDefault("skyrl", (0,), "any", "raw_logprobs", True, "SkyRL a9564572: set nowhere"),
    FrameworkDefault("roll", (0,), "any", "raw_logprobs", False, "ROLL functionals.py L214: never divides by T"),
    FrameworkDefault("slime", (0,), "any", "", True, "slime 624b824a: SGLang's own, scaled by T"),
)

RENAMED_METRICS: Mapping[str, tuple[str, str]] = {
    "vllm:gpu_cache_usage_perc": ("vllm:kv_cache_usage_perc", "0.9.2, old name hidden in 0.11, gone in 0.12"),
    "vllm:gpu_prefix_cache_queries": ("vllm:prefix_cache_queries", "0.9.2"),
    "vllm:gpu_prefix_cache_hits": ("vllm:prefix_cache_hits", "0.9.2"),
    "vllm:time_per_output_token_seconds": ("vllm:inter_token_latency_seconds", "0.10.2, old name gone by 0.20"),
    "sglang:num_aborted_requests": ("sglang:num_aborted_requests_total", "after 0.4.9"),
    "sglang:avg_request_queue_latency": ("sglang:queue_time_seconds", "after 0.4.9"),
}
"""Old name -> (new name, when)."""


def parse_version(text: str) -> Version:
    """(0, 10, 2) of "0.10.2rc1", "v0.10.2+cu128", "0.31.0"; empty if there is no number."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(p) for p in found[1].split(".")) if found else ()


def default_mode(engine: str, version: str = "") -> str:
    """The mode of an engine that was given none; "" for an engine without modes.

    vLLM's default is raw_logprobs in every version that has the option; V0 (before 0.8) reported what later versions
    call processed_logprobs.
    """
    if engine != "vllm":
        return ""
    known = parse_version(version)
    return "processed_logprobs" if known and known < (0, 8) else "raw_logprobs"


def semantics(engine: str, version: str, mode: str | None = None) -> Semantics | None:
    """What the logprobs that this engine reports contain.

    engine: vllm or sglang; version as the engine prints it, "" for unknown (the newest that was read is assumed);
    mode: None for the default. None: not known, such as a mode that this version does not have.
    """
    mode = default_mode(engine, version) if mode is None else mode
    known = parse_version(version) or (99,)
    found: _Era | None = None
    for era in _ERAS:
        if era.engine == engine and era.mode in (mode, "*") and era.since <= known:
            if era.mode == "*" and known >= (0, 8):
                continue
            if found is None or era.since >= found.since:
                found = era
    return found.says if found else None


def framework_mode(framework: str, version: str, setting: str = "any") -> FrameworkDefault | None:
    """Which mode a framework sets by itself; `setting` as in FrameworkDefault. None: not known."""
    known = parse_version(version) or (99,)
    rows = [r for r in FRAMEWORKS if r.framework == framework and r.setting in (setting, "any") and r.since <= known]
    return max(rows, key=lambda r: (r.since, r.setting != "any"), default=None)
