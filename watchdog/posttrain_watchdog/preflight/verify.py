"""The go-live checklist: every limit of the troubleshooting guide with its figure, its sample size and a verdict.

Promises: unknown is not pass - what was not measured, or not on enough tokens, is unknown, with what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from posttrain_watchdog.preflight.document import number
from posttrain_watchdog.preflight.framework import at_least, version_key
from posttrain_watchdog.preflight.measurements import Measurements
from posttrain_watchdog.vocabulary import TOKEN_CAUSES

Verdict = Literal["pass", "fail", "unknown"]
MIN_TOKENS = 500
"""fewer tokens than this decide nothing about a mean (the public record's floor for token statistics)"""
_Z = 3.0
_HARMLESS = {"healthy", "precision_noise", "policy_lag"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the checklist."""

    id: str
    what: str
    limit: str
    value: str
    samples: int
    unit: str
    """of the samples: tokens, readings, "" where a fact decides"""
    verdict: Verdict
    note: str
    """why it failed, or what is missing"""


def verify(measured: Measurements) -> list[Line]:
    """The lines of the checklist, in the guide's order."""
    return [judge(measured) for judge in _LINES]


def exit_code(lines: Sequence[Line]) -> int:
    """0 if every line passes, 1 otherwise: unknown is not pass."""
    return 0 if all(line.verdict == "pass" for line in lines) else 1


def _ratio(m: Measurements) -> Line:
    found = m.get("posttrain_importance_ratio_mean")
    head = ("importance-ratio", "importance ratio, mean over tokens", "1.0 ± 0.2")
    if found is None:
        return _missing(*head, "no token samples: dump them from the trainer, or give the dump")
    error = found.stderr
    value = f"{found.value:.4f}" + (f" ± {error:.4f}" if error is not None else "")
    line = (*head, value, found.samples, "tokens")
    if not math.isfinite(found.value):
        return Line(*line, "fail", "the mean is not finite")
    off = abs(found.value - 1)
    reach = _Z * (error or 0.0)
    if off - reach > 0.2:
        return Line(*line, "fail", "outside the band by more than three standard errors")
    if found.samples < MIN_TOKENS:
        return Line(*line, "unknown", f"fewer than {MIN_TOKENS} tokens")
    if off + reach > 0.2:
        return Line(*line, "unknown", "the band lies within three standard errors: more tokens are needed")
    return Line(*line, "pass", "")


def _kl(m: Measurements) -> Line:
    k3, k2 = m.get("posttrain_kl_k3"), m.get("posttrain_kl_k2")
    head = ("kl", "KL between engine and trainer (k3)", "< 0.1")
    if k3 is None:
        return _missing(*head, "no token samples: dump them from the trainer, or give the dump")
    line = (*head, f"{k3.value:.5f}", k3.samples, "tokens")
    if not math.isfinite(k3.value):
        return Line(*line, "fail", "the mean is not finite")
    if k3.value >= 0.1:
        if k2 is not None and k2.value < 0.1:
            return Line(*line, "unknown", f"one extreme token makes it: k2 is {k2.value:.5f}")
        return Line(*line, "fail", "healthy dense models in bf16 show 0.0005 to 0.001")
    if k3.samples < MIN_TOKENS:
        return Line(*line, "unknown", f"fewer than {MIN_TOKENS} tokens")
    return Line(*line, "pass", "")


def _cap(m: Measurements) -> Line:
    head = ("importance-cap", "importance ratio cap", "10.0")
    return _fact(m, "is_cap", head, lambda v: number(v) == 10.0, "the guide caps at 10.0")


def _overflow(m: Measurements) -> Line:
    found = m.get("posttrain_non_finite_fraction")
    top = m.get("posttrain_importance_ratio_max")
    head = ("overflow", "NaN or infinity in logprobs and ratios", "none")
    if found is None and top is None:
        return _missing(*head, "no token samples")
    share = 0.0 if found is None else found.value
    samples = 0 if found is None else found.samples
    largest = math.inf if top is None else top.value
    value = f"{share:.2%} of tokens" + (f", largest ratio {largest:.3g}" if top is not None else "")
    line = (*head, value, samples, "tokens")
    if share > 0 or math.isnan(share) or (top is not None and not math.isfinite(largest)):
        return Line(*line, "fail", "exp overflows, or a side reports NaN or infinity")
    return Line(*line, "pass", "") if samples else Line(*line, "unknown", "no token was compared")


def _latency(m: Measurements) -> Line:
    found = m.get("posttrain_engine_seconds_per_token")
    head = ("latency", "sampling latency per token", "< 15 ms")
    if found is None:
        return _missing(*head, "no engine metrics: give the engine's /metrics")
    line = (*head, f"{found.value * 1000:.1f} ms", found.samples, "readings")
    return Line(*line, *_verdict(found.value < 0.015, "slower than the guide allows"))


def _throughput(m: Measurements) -> Line:
    head = ("throughput", "throughput difference, training and inference", "< 5 %")
    trainer, engine = m.get("posttrain_trainer_tokens_per_second"), m.get("posttrain_engine_tokens_per_second")
    if trainer is not None and engine is not None and max(trainer.value, engine.value) > 0:
        gap = abs(trainer.value - engine.value) / max(trainer.value, engine.value)
        samples = min(trainer.samples, engine.samples)
        note = f"training {trainer.value:.0f} tokens/s, inference {engine.value:.0f} tokens/s"
        return Line(
            *head, f"{gap:.1%}", samples, "readings", "pass" if gap < 0.05 else "fail", "" if gap < 0.05 else note
        )
    wait, step = m.get("posttrain_trainer_wait_seconds"), m.get("posttrain_trainer_step_seconds")
    if wait is not None and step is not None and step.value > 0:
        gap = wait.value / step.value
        line = (*head, f"{gap:.1%}", wait.samples, "readings")
        return Line(*line, *_verdict(gap < 0.05, "the trainer waits this share of the step for rollouts"))
    return _missing(*head, "needs tokens per second of both sides, or the time that the trainer waits")


def _reserve(m: Measurements) -> Line:
    found = m.get("posttrain_gpu_memory_reserve_ratio")
    head = ("gpu-memory", "GPU memory left free for calibration", "20 %")
    if found is None:
        return _missing(*head, "no GPU readings (NVML)")
    line = (*head, f"{found.value:.1%} at the fullest", found.samples, "readings")
    return Line(*line, *_verdict(found.value >= 0.2, "lower gpu_memory_utilization"))


def _mode(m: Measurements) -> Line:
    head = ("logprobs-mode", "engine: logprobs mode", "processed_logprobs")
    advice = "start the engine with --logprobs-mode processed_logprobs"
    return _fact(m, "logprobs_mode", head, lambda v: v == "processed_logprobs", advice)


def _enabled(m: Measurements) -> Line:
    found = m.get("posttrain_unscored_fraction")
    head = ("logprobs-enabled", "engine: logprobs of every token", "all")
    if found is None:
        return _missing(*head, "no token samples")
    line = (*head, f"{1 - found.value:.2%} scored", found.samples, "tokens")
    return Line(*line, *_verdict(found.value < 0.001, "tokens under the mask have no engine logprob"))


def _engine_version(m: Measurements) -> Line:
    return _version(m, "engine_version", "engine-version", "engine: version", "0.6.0")


def _torch(m: Measurements) -> Line:
    return _version(m, "torch_version", "torch-version", "trainer: torch", "2.0")


def _is_mode(m: Measurements) -> Line:
    head = ("is-mode", "trainer: importance sampling mode", "sequence_truncate")
    return _fact(m, "is_mode", head, lambda v: v == "sequence_truncate", "the guide recommends sequence_truncate")


def _interval(m: Measurements) -> Line:
    head = ("correction-interval", "trainer: correction every", "100 steps")
    return _fact(m, "correction_interval", head, lambda v: number(v) == 100, "the guide corrects every 100 steps")


def _window(m: Measurements) -> Line:
    head = ("correction-window", "trainer: correction window", "500")
    return _fact(m, "correction_window", head, lambda v: number(v) == 500, "the guide's window is 500")


def _calibration(m: Measurements) -> Line:
    logged, due = m.get("posttrain_trainer_is_correction_factor"), m.get("posttrain_calibration_factor")
    head = ("calibration", "calibration factor", "min(1, initial × exp(−step / decay))")
    if logged is None or due is None:
        return _missing(*head, "needs the factor that the trainer logs and the schedule in the configuration")
    line = (*head, f"{logged.value:.4f}, due {due.value:.4f}", logged.samples, "readings")
    return Line(*line, *_verdict(abs(logged.value - due.value) <= 0.05, "off its schedule by more than 0.05"))


def _timeout(m: Measurements) -> Line:
    found = m.get("posttrain_collective_timeout_seconds")
    if found is not None and "collective_timeout" not in m.facts:
        m.add_facts({"collective_timeout": f"{found.value:g}"})
    head = ("collective-timeout", "distributed: collective timeout", "300 s")
    return _fact(m, "collective_timeout", head, lambda v: number(v.removesuffix("s").strip()) == 300, "set it to 300 s")


def _prompt(m: Measurements) -> Line:
    head = ("prompt-logprobs", "problem 1: inference output has prompt_logprobs", "present")
    if any(d.cause == "prompt_logprobs_missing" and d.confidence >= 0.5 for d in m.diagnoses):
        return Line(*head, "missing", 0, "", "fail", "ask for prompt_logprobs")
    return _fact(m, "prompt_logprobs", head, lambda v: v == "present", "ask for prompt_logprobs")


def _mask(m: Measurements) -> Line:
    masks = {c for c in TOKEN_CAUSES if c.startswith("mask_")} | {"unsampled_eos_trained"}
    return _causes(m, "completion-mask", "problem 1: completion_mask counts sampled tokens alone", masks)


def _named(m: Measurements) -> Line:
    return _causes(m, "causes", "no named cause in the tokens", set(TOKEN_CAUSES) - _HARMLESS)


_LINES: tuple[Callable[[Measurements], Line], ...] = (
    _ratio, _kl, _cap, _overflow, _latency, _throughput, _reserve, _mode, _enabled, _engine_version, _torch, _is_mode,
    _interval, _window, _calibration, _timeout, _prompt, _mask, _named,
)  # fmt: skip


def _fact(m: Measurements, fact: str, head: tuple[str, str, str], holds: Callable[[str], bool], advice: str) -> Line:
    value = m.facts.get(fact, "")
    if value == "":
        return _missing(*head, "neither a log nor a configuration says so")
    return Line(*head, value, 0, "", *_verdict(holds(value), advice))


def _version(m: Measurements, fact: str, id_: str, what: str, least: str) -> Line:
    value = m.facts.get(fact, "")
    if not version_key(value.removeprefix("v")):
        return _missing(id_, what, f">= {least}", "neither a log nor a configuration says so")
    holds = at_least(value.removeprefix("v"), least)
    return Line(id_, what, f">= {least}", value, 0, "", *_verdict(holds, f"older than {least}"))


def _causes(m: Measurements, id_: str, what: str, causes: set[str]) -> Line:
    found = [d for d in m.diagnoses if d.cause in causes and d.confidence >= 0.5]
    if found:
        value = ", ".join(f"{d.cause} ({d.confidence:.2f})" for d in found)
        return Line(id_, what, "none", value, m.tokens, "tokens", "fail", found[0].summary)
    if m.tokens < MIN_TOKENS:
        note = f"fewer than {MIN_TOKENS} tokens" if m.tokens else "no token samples"
        return Line(id_, what, "none", "", m.tokens, "tokens", "unknown", note)
    return Line(id_, what, "none", "none", m.tokens, "tokens", "pass", "")


def _missing(id_: str, what: str, limit: str, note: str) -> Line:
    return Line(id_, what, limit, "", 0, "", "unknown", note)


def _verdict(holds: bool, note: str) -> tuple[Verdict, str]:
    return ("pass", "") if holds else ("fail", note)
