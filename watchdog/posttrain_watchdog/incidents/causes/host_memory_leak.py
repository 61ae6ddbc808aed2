"""Host memory grows towards its end; when.

Guards: used memory without page cache; the growth must show in every third of at least 30 readings or 2 hours, pass a
trend test under autocorrelation, and reach 95 % within a day. A kill for memory says itself that the end was reached.
"""

from __future__ import annotations

import math

from posttrain_watchdog.incidents.finding import AGAINST, STATED, SUPPORT, Finding, of_test
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.statistics import Slope, slope, thirds
from posttrain_watchdog.incidents.track import Track

_USED = "posttrain_host_memory_used_bytes"
_TOTAL = "posttrain_host_memory_total_bytes"
_PROCESS = "posttrain_process_resident_bytes"
_LEAST_READINGS = 16
_LEAST_SECONDS = 7200.0
_END = 0.95
_AHEAD_SECONDS = 86400.0
_GIB = 2.0**30


def judge(history: History) -> Finding | None:
    used, total = history.track(_USED), history.track(_TOTAL).last
    witnesses: dict[str, float] = {}
    evidence: dict[str, float | str] = {}
    trend = _trend(used)
    when = math.inf
    if trend is not None and total > 0:
        when = (_END * total - used.last) / trend.per_step
        if when <= _AHEAD_SECONDS:
            witnesses["grows steadily"] = of_test(max(trend.p, 0.001))
            evidence["slope"] = f"{trend.per_step * 3600 / _GIB:.1f} GiB per hour"
            evidence["used"] = f"{used.last / _GIB:.0f} of {total / _GIB:.0f} GiB"
            evidence["reaches 95 %"] = "reached" if when <= 0 else f"in {when / 3600:.1f} h"
    killed = [
        e for e in history.events("host_oom") if e.labels.get("by") != "kernel" or _ours(e.labels.get("name", ""))
    ]
    if killed:
        witnesses["killed for memory"] = STATED
        evidence["kill"] = killed[-1].text[:200]
        if len(used) >= _LEAST_READINGS and not evidence.get("slope"):
            witnesses["memory did not grow before"] = AGAINST
    if not witnesses:
        return None
    grows = {
        dict(labels).get("role", "") or dict(labels).get("pid", "") or "worker": by
        for labels, track in history.tracks(_PROCESS)
        if (by := _trend(track)) is not None
    }
    if grows:
        name, fastest = max(grows.items(), key=lambda item: item[1].per_step)
        evidence["process"] = f"{name}: {fastest.per_step * 3600 / _GIB:.2f} GiB per hour"
        witnesses["one process grows with it"] = SUPPORT
    return Finding(
        summary="host memory"
        + (f" grows by {evidence['slope']}, {evidence['used']}" if "slope" in evidence else " ran out")
        + (f", 95 % {evidence['reaches 95 %']}" if "reaches 95 %" in evidence else ""),
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            "which process grows: trainer, engine, data loader, object store",
            "engine version (known leaks with n > 1) and what is kept per step: logs, graphs, pinned buffers",
            "does it grow at validation and checkpoints only",
        ),
        first_step=killed[0].step if killed else None,
    )


def _trend(track: Track) -> Slope | None:
    """A steady growth in units per second (of the readings' times); None if there is none."""
    at, read = track.finite()
    if len(read) < _LEAST_READINGS or (at[-1] - at[0] < _LEAST_SECONDS and len(read) < 2 * _LEAST_READINGS):
        return None
    settled = len(read) // 10
    at, read = at[settled:], read[settled:]
    first, middle, last = thirds(read)
    rise = last - first
    if rise <= 0.02 * last or middle - first < 0.2 * rise or last - middle < 0.2 * rise:
        return None
    found = slope(at, read)
    return found if found.per_step > 0 and found.p <= 1e-3 else None


def _ours(name: str) -> bool:
    """Whether a process that the kernel killed looks like part of a run."""
    return any(word in name.lower() for word in ("python", "ray", "vllm", "sglang", "torch", "pt_", "train"))
