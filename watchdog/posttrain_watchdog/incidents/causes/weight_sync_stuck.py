"""The update of the engine's weights began and does not end.

Guards: many logs never say that an update ended, so a later step or a later update ends it too; the first update is
slow; the limit is a multiple of the run's own updates and steps.
"""

from __future__ import annotations

from statistics import median

from posttrain_watchdog.incidents.finding import STATED, STRONG, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.model import Event

_TIMES = 5.0
_LEAST_SECONDS = 120.0
_FIRST_SECONDS = 600.0


def judge(history: History) -> Finding | None:
    refused = [
        e for e in history.since_step if e.kind == "engine_request_failed" and "weight" in str(e.labels) + e.text
    ]
    started = history.open_sync or (refused[0] if refused else None)
    if started is None or history.finished or history.interrupted is not None:
        return None
    witnesses: dict[str, float] = {}
    evidence: dict[str, float | str] = {"last line": started.text[:160]}
    later = history.since_step[_place(history.since_step, started) :]
    complaints = [e for e in later if e.kind in ("nccl_timeout", "nccl_error")]
    if complaints:
        witnesses["a collective timed out in it"] = STRONG
        witnesses["no end of the update"] = STRONG
        evidence["collective"] = complaints[0].text[:160]
    if refused:
        witnesses["the engine refused it"] = STATED
        evidence["engine"] = refused[0].text[:160]
    spent = None if history.sync_seen is None or history.now is None else history.now - history.sync_seen
    usual = _usual(history)
    limit = (
        _FIRST_SECONDS if usual is None else max(_TIMES * usual, _LEAST_SECONDS, 2 * (history.usual_step_seconds or 0))
    )
    if spent is not None and spent > limit:
        witnesses[f"{spent:.0f} s without an end"] = STRONG
        if spent > 3 * limit:
            witnesses["far beyond"] = SUPPORT
        evidence["seconds"] = round(spent)
        evidence["limit"] = f"{limit:.0f} s" + ("" if usual is None else f", {_TIMES:g} times the usual {usual:.3g} s")
    if not witnesses:
        return None
    return Finding(
        summary=f"weight update that began with '{started.text[:80].strip()}' has not ended"
        + (f" for {spent:.0f} s" if spent else ""),
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            "the engine's log at that moment: refused, out of memory, still serving",
            "free memory on the engine, and whether it was asleep",
            "the update's process group: do trainer rank 0 and all engine ranks take part in the same order",
        ),
        first_step=started.step,
    )


def _place(events: list[Event], started: Event) -> int:
    return next((i for i, e in enumerate(events) if e is started or e.text == started.text), 0)


def _usual(history: History) -> float | None:
    logged = [v for v in history.trainer("weight_sync_seconds").finite()[1][-20:] if v > 0]
    if logged:
        return float(median(logged))
    begun = {e.step: e.time for e in history.events("weight_sync_started") if e.time is not None}
    ended = [(e.step, e.time) for e in history.events("weights_synced") if e.time is not None]
    took = [time - begun[step] for step, time in ended if step in begun and time >= begun[step]]
    return float(median(took)) if len(took) >= 3 else None
