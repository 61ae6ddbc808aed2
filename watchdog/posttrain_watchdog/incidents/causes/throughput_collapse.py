"""The engine or the trainer slowed down for good, and why, if its log says so.

Guards: an engine with few running requests is at the end of a batch, not slow; longer completions and more generation
batches make steps longer without anything being slow; the drop must last.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.incidents.finding import AGAINST, STRONG, STRONGLY_AGAINST, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.statistics import departure, spread
from posttrain_watchdog.incidents.track import Track

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENGINE_RATE = "posttrain_engine_generation_tokens_per_second"
ENGINE_RUNNING = "posttrain_engine_requests_running"
ENGINE_CACHE = "posttrain_engine_kv_cache_usage_ratio"
_LASTING = 5
_ENGINE_SHARE = 0.25
_TRAINER_SHARE = 0.4
_CHECKS = (
    "KV cache usage, retractions and preemptions of the engine; lower the concurrency",
    "running and waiting requests, and the slowest of them",
    "clocks, power and throttling of the GPUs; restart the engine if it does not recover in 5 minutes",
)


def judge(history: History) -> Finding | None:
    for labels, track in history.tracks(ENGINE_RATE):
        found = _engine(history, labels, track)
        if found is not None:
            return found
    return _trainer(history)


def _fallen(read: NDArray[np.float64], share: float) -> tuple[float, float, int] | None:
    """(usual, present, readings since) of a drop that lasts; None if there is none."""
    if len(read) < 2 * _LASTING:
        return None
    present = float(np.median(read[-_LASTING:]))
    if present >= share * float(read.max()):
        return None
    for cut in range(len(read) - _LASTING, _LASTING - 1, -1):
        usual = float(np.median(read[max(0, cut - 50) : cut]))
        if usual > 0 and present < share * usual and read[cut:].max() < (1 + share) / 2 * usual:
            low = read < (1 + share) / 2 * usual
            since = len(read) - int(np.flatnonzero(~low)[-1]) - 1 if (~low).any() else len(read)
            return usual, present, since
    return None


def _engine(history: History, labels: tuple[tuple[str, str], ...], track: Track) -> Finding | None:
    at, read = track.finite()
    busy = read > 0
    at, read = at[busy], read[busy]
    fallen = _fallen(read, _ENGINE_SHARE)
    if fallen is None:
        return None
    usual, present, since = fallen
    onset = at[len(read) - since]
    witnesses = {f"{present / usual:.0%} of the usual tokens per second": STRONG}
    evidence: dict[str, float | str] = {"tokens per second": f"{usual:.0f} -> {present:.0f}", "readings": float(since)}
    running_at, running = _beside(history.tracks(ENGINE_RUNNING), labels)
    before, after = running[running_at < onset], running[running_at >= onset]
    if len(before) and len(after):
        evidence["running requests"] = f"{np.median(before):g} -> {np.median(after):g}"
        fewer = np.median(after) < 0.6 * np.median(before)
        witnesses["fewer requests" if fewer else "requests not fewer"] = STRONGLY_AGAINST if fewer else STRONG
    else:
        witnesses["it may be the end of a batch"] = AGAINST
        evidence["running requests"] = "unknown"
    retracted = history.events("kv_retraction")
    if retracted:
        witnesses["requests were thrown out of the cache"] = SUPPORT
        evidence["retraction"] = retracted[-1].text[:160]
    _, cache = _beside(history.tracks(ENGINE_CACHE), labels)
    if len(cache) and cache[-1] > 0.9:
        witnesses["the cache is full"] = SUPPORT
        evidence["KV cache usage"] = round(float(cache[-1]), 3)
    return Finding(
        summary=f"engine fell from {usual:.0f} to {present:.0f} tokens per second"
        + (" after its cache ran full" if retracted else ""),
        witnesses=witnesses,
        evidence=evidence,
        first_checks=_CHECKS,
        first_step=retracted[0].step if retracted else history.step,
        labels={k: v for k, v in labels if k in ("engine", "replica", "rank")},
    )


def _beside(
    tracks: Iterable[tuple[tuple[tuple[str, str], ...], Track]], labels: tuple[tuple[str, str], ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The series with the same labels, or the only one."""
    known = dict(tracks)
    track = known.get(labels) or (next(iter(known.values())) if len(known) == 1 else Track())
    return track.finite()


def _trainer(history: History) -> Finding | None:
    for short, share in (("tokens_per_second", _TRAINER_SHARE), ("tokens_per_second_per_gpu", _TRAINER_SHARE)):
        at, read = history.trainer(short).finite()
        fallen = _fallen(read, share)
        if fallen is None:
            continue
        usual, present, since = fallen
        onset = at[len(read) - since]
        witnesses = {f"{present / usual:.0%} of the usual {short}": STRONG}
        evidence: dict[str, float | str] = {short: f"{usual:.4g} -> {present:.4g}", "steps": float(since)}
        noise = spread(read[: len(read) - since]) / usual
        if noise < 0.1:
            witnesses["steady before"] = SUPPORT
        for other, name in (
            ("completion_length_mean", "completion length"),
            ("generation_batches", "generation batches"),
        ):
            other_at, values = history.trainer(other).finite()
            before, after = values[other_at < onset], values[other_at >= onset]
            if len(before) and len(after) and np.median(after) > 1.5 * np.median(before):
                witnesses[f"{name} grew"] = AGAINST
                evidence[name] = f"{np.median(before):g} -> {np.median(after):g}"
        for phase in ("generation", "training", "logprob", "weight_sync", "wait"):
            phase_at, seconds = history.trainer(f"{phase}_seconds").finite()
            before, after = seconds[phase_at < onset], seconds[phase_at >= onset]
            if len(before) and len(after) and np.median(after) > 2 * np.median(before):
                evidence[f"{phase} seconds"] = f"{np.median(before):.3g} -> {np.median(after):.3g}"
        return Finding(
            summary=f"{short} fell from {usual:.4g} to {present:.4g}",
            witnesses=witnesses,
            evidence=evidence,
            first_checks=(
                "which part of the step grew: generation, log-probs, update, sync, waiting",
                "throttling, power cap and a straggler among the GPUs",
                "data loader, storage and network of the node",
            ),
            first_step=int(departure(at, -read)),
        )
    return None
