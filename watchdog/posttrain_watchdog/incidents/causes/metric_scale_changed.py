"""The logging changed, not the run: one figure jumps by a factor while everything that should move with it stays.

Guards: both sides of the jump must be steady, the jump must happen between two steps, the factor must be one that code
makes (a whole number, its inverse, a power of ten), and at least two anchors (gradient, entropy, reward, length, KL)
must not have moved at that step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.incidents.finding import STRONG, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.statistics import spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOGGED = ("loss", "policy_loss", "value_loss", "kl_ref", "grad_norm", "entropy", "tokens_per_second", "mfu")
_ANCHORS = ("grad_norm", "entropy", "reward_mean", "completion_length_mean", "kl_ref", "loss", "tokens_per_second")
_SIDE = 5
_STEADY = 0.12
"""Spread over level on both sides of a jump; anchors may scatter twice as much."""
_FACTORS = (1.442695, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 60, 64, 100, 128, 256, 1000, 1024, 1e6)


def judge(history: History) -> Finding | None:
    for short in _LOGGED:
        at, read = history.trainer(short).finite()
        place = _jump(read)
        if place is None:
            continue
        before, after = read[max(0, place - 20) : place], read[place : place + 20]
        times = float(np.median(after) / np.median(before))
        factor = _nearest(
            times, np.hypot(spread(before) / abs(np.median(before)), spread(after) / abs(np.median(after)))
        )
        if factor is None:
            continue
        stayed, moved = _anchors(history, short, at[place])
        if len(stayed) < 2 or moved:
            continue
        witnesses = {f"{short} jumps by {factor}": SUPPORT, "and nothing moves with it": STRONG}
        if len(stayed) >= 3:
            witnesses["three anchors stay"] = SUPPORT
        changed = [e for e in history.events("config_changed") if e.step is None or abs(e.step - at[place]) <= 2]
        if changed or any(abs(b - at[place]) <= 1 for b in history.breaks):
            witnesses["a setting changed there" if changed else "the run resumed there"] = (
                STRONG if changed else SUPPORT
            )
        return Finding(
            summary=f"{short} jumps by {factor} at step {at[place]:g}, while {', '.join(stayed)} stay",
            witnesses=witnesses,
            evidence={
                short: f"{np.median(before):.4g} -> {np.median(after):.4g}",
                "factor": f"{times:.4g}, close to {factor}",
                "unchanged": ", ".join(stayed),
                **({"line": changed[-1].text[:160]} if changed else {}),
            },
            first_checks=(
                "version or configuration change at that step: how the figure is averaged, summed or scaled",
                "recompute it from the raw values of one step",
                "repeat one step with another number of micro-batches: does the figure follow",
            ),
            first_step=int(at[place]),
        )
    return None


def _jump(read: NDArray[np.float64]) -> int | None:
    """Place of the last clean jump between two steady levels; None if there is none."""
    n = len(read)
    start = max(_SIDE, n - 100)
    if n < start + _SIDE or not np.abs(read).min() > 0:
        return None
    recent = np.abs(read[start:])
    if float(np.median(np.abs(np.diff(recent)))) > 3 * _STEADY * float(np.median(recent)):
        return None  # not steady between most neighbours
    # medians of the _SIDE values from each place on; a jump shows between windows that touch, and between neighbours
    middles = np.median(np.lib.stride_tricks.sliding_window_view(read, _SIDE), axis=1)
    places = np.arange(start, n - _SIDE + 1)
    if not np.abs(middles).min() > 0:
        return None
    change = np.abs(np.log(np.abs(middles[places] / middles[places - _SIDE])))
    sudden = np.abs(np.log(np.abs(read[places] / read[places - 1])))
    for place in places[(change > np.log(1.8)) & (sudden > np.log(1.5))][::-1]:
        before, after = read[max(0, place - 20) : place], read[place : place + 20]
        low, high = np.median(before), np.median(after)
        if low * high <= 0 or 0.55 < high / low < 1.8:
            continue
        if min(len(before), len(after)) < 8 and max(np.ptp(before[-_SIDE:] / low), np.ptp(after[:_SIDE] / high)) > 0.3:
            continue  # few points: their range must be small too
        if spread(before) < _STEADY * abs(low) and spread(after) < _STEADY * abs(high):
            nearer = np.abs(np.log(np.abs(read[[place - 1, place]]) / np.abs([low, high])))
            if nearer.max() < 0.3:
                return int(place)
    return None


def _nearest(times: float, noise: float) -> str | None:
    """The factor that code makes, if the measured one is one within 2 % or two standard errors."""
    times = abs(times)
    size, sign = (times, "") if times >= 1 else (1 / times, "1/")
    tolerance = max(0.02, 2 * float(noise) / np.sqrt(_SIDE))
    best = min(_FACTORS, key=lambda f: abs(np.log(size / f)))
    return f"{sign}{best:g}" if abs(np.log(size / best)) < min(tolerance, 0.08) else None


def _anchors(history: History, short: str, step: float) -> tuple[list[str], list[str]]:
    """Figures that stayed at that step, and those that moved."""
    stayed: list[str] = []
    moved: list[str] = []
    for other in _ANCHORS:
        if other == short or {other, short} <= {"loss", "policy_loss"}:
            continue
        at, read = history.trainer(other).finite()
        before, after = read[at < step][-20:], read[at >= step][:20]
        if len(before) < _SIDE or len(after) < _SIDE:
            continue
        noise, level = max(spread(before), spread(after)), abs(float(np.median(before)))
        if abs(np.median(after) - np.median(before)) >= 3 * max(noise, 0.02 * level, 1e-12):
            moved.append(other)
        elif noise < 2 * _STEADY * level:
            stayed.append(other)
    return stayed, moved
