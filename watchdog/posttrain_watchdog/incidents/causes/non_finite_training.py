"""NaN or infinite loss or gradient.

Guards: a metric that is NaN from the start (a KL without a reference model, a source that is absent) says nothing;
neither does the very first step, nor a single overflow under dynamic loss scaling, which skips that step by design.
"""

from __future__ import annotations

import math

from posttrain_watchdog.incidents.finding import STATED, STRONGLY_AGAINST, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.track import Track

_WATCHED = ("grad_norm", "loss", "policy_loss", "value_loss")
_BESIDE = ("kl_ref", "entropy", "ppo_kl")
_REMEMBERED = 50
_RECOVERED = 3


def judge(history: History) -> Finding | None:
    witnesses: dict[str, float] = {}
    evidence: dict[str, float | str] = {}
    first: float | None = None
    since_last = math.inf
    scaled = len(history.trainer("loss_scale")) > 0
    for short in _WATCHED:
        track = history.trainer(short)
        places = _bad(track, scaled)
        if not places:
            continue
        where = track.at[places[0]]
        first = where if first is None else min(first, where)
        since_last = min(since_last, len(track) - 1 - places[-1])
        before = next((v for v in reversed(track.read[: places[0]]) if math.isfinite(v)), None)
        evidence[short] = f"{track.read[places[0]]} at step {where:g}" + (
            "" if before is None else f", {before:g} before"
        )
        witnesses[f"{short} is not finite"] = STATED if len(witnesses) == 0 else SUPPORT
    said = [e for e in history.events("nan_loss") if _recent(e.step, history)]
    if said:
        witnesses["a line says so"] = STATED if not witnesses else SUPPORT
        evidence["line"] = said[-1].text[:160]
        since_last = min(since_last, 0 if said[-1].step is None else max(0, (history.step or 0) - said[-1].step))
        if first is None and said[0].step is not None:
            first = said[0].step
    if not witnesses:
        return None
    for short in _BESIDE:
        places = _bad(history.trainer(short), scaled)
        if places:
            evidence[short] = (
                f"{history.trainer(short).read[places[0]]} at step {history.trainer(short).at[places[0]]:g}"
            )
    if history.trainer("learning_rate").last == 0:
        evidence["learning_rate"] = "0: steps are skipped, the schedule has not ended"
    if history.events("samples_degenerate"):
        witnesses["completions are degenerate"] = SUPPORT
        evidence["completions"] = history.events("samples_degenerate")[-1].text[:120]
    if since_last >= _RECOVERED:
        witnesses["finite again"] = STRONGLY_AGAINST
        evidence["steps since"] = since_last
    return Finding(
        summary="not finite: " + "; ".join(f"{k} {v}" for k, v in evidence.items() if k in (*_WATCHED, "line")),
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            "go back to the last checkpoint with finite gradients and see whether the step was applied or skipped",
            "look at the first batch that is not finite: zero tokens under the mask, an empty group, an extreme ratio",
            "number format and kernels of the trainer: loss scale, bf16 head, accumulation count",
        ),
        first_step=None if first is None else int(first),
    )


def _bad(track: Track, scaled: bool) -> list[int]:
    """Places of the values that are not finite and should be, among the remembered ones."""
    start = max(0, len(track) - _REMEMBERED)
    places = [i for i in range(start, len(track)) if not math.isfinite(track.read[i])]
    if not places:
        return []
    in_a_row = places[-1] - places[0] + 1 == len(places)
    if not track.head or track.head[0][0] > track.at[places[0]]:
        # never finite before: only where it stays so
        return places if len(places) >= _RECOVERED and places[-1] == len(track) - 1 and in_a_row else []
    if scaled and len(places) < _RECOVERED and places[-1] != len(track) - 1:
        return []
    return places


def _recent(step: int | None, history: History) -> bool:
    return step is None or history.step is None or history.step - step <= _REMEMBERED
