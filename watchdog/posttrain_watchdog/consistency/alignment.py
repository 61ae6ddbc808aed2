"""Whose logprob is it: the same values compared with a neighbour's, another sequence's, another candidate's.

All of these ask one question: how much of sum |t - s| goes away when t is compared with the value s' that it would
have been given under the fault. Where nothing is wrong, or something else is, a foreign value fits worse, so what
goes away is negative: no threshold is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

LAGS = (-2, -1, 1, 2)
MOST_SEQUENCES = 512
"""of a step that are compared with one another: the work grows with the square"""
PREFIX = 64
"""tokens of each that are compared"""


@dataclass(slots=True)
class Shift:
    """The best lag: the engine's value of token i + lag belongs to token i."""

    lag: int
    explained: float
    p: float
    per_step: dict[int, float]
    """what goes away at each step, less what comes anew, as a share of the step's own sum"""


def best_shift(window: Window) -> Shift | None:
    """The lag at which the engine's logprobs fit best, and how much of the difference it takes away."""
    best: Shift | None = None
    usable = window.both & ~window.positive
    for lag in LAGS:
        here, there = _pairs(window, lag, usable)
        if len(here) < 8:
            continue
        before = np.abs(window.trainer[here] - window.engine[here])
        after = np.abs(window.trainer[here] - window.engine[there])
        owner, n = window.sequence[here], window.batch.sequences
        # sequences that agree as they are (before the onset, another replica) say nothing about where it goes
        wrong = np.bincount(owner, before, n) > np.bincount(owner, window.tolerance[here], n)
        total = float(before[wrong[owner]].sum())
        if total <= 0.0:
            continue
        explained = 1.0 - float(after[wrong[owner]].sum()) / total
        if best is not None and explained <= best.explained:
            continue
        p = positive_mean(np.bincount(owner, before - after, n)[wrong])
        steps = window.per_step(before - after, window.token_step[here])
        best = Shift(lag, explained, p, steps)
    return best


def _pairs(window: Window, lag: int, usable: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices (i, i + lag) of tokens of the same sequence, i in the loss and both usable."""
    places = np.flatnonzero(usable & window.batch.mask)
    other = places + lag
    inside = (other >= 0) & (other < window.batch.tokens)
    places, other = places[inside], other[inside]
    same = (window.sequence[places] == window.sequence[other]) & usable[other]
    return places[same], other[same]


def positive_mean(gains: NDArray[Any]) -> float:
    """One-sided p that the mean gain of a sequence is above 0 (sign-flip bound of Hoeffding, free of any shape)."""
    norm = float(np.sqrt((gains**2).sum()))
    if norm <= 0.0 or gains.sum() <= 0.0:
        return 1.0
    return float(np.exp(-0.5 * (gains.sum() / norm) ** 2))


@dataclass(slots=True)
class Routing:
    """For each sequence the one of its step whose engine logprobs fit its trainer logprobs best."""

    hit: NDArray[np.bool_]
    """[S] another sequence's values fit, its own do not"""
    explained: float
    p: float


def best_routing(window: Window) -> Routing | None:
    """Which sequences hold another's engine logprobs: within a step, the first PREFIX tokens against all others."""
    n = window.batch.sequences
    own, best, partner = np.zeros(n), np.zeros(n), np.full(n, -1, np.int64)
    for step in window.steps:
        rows = np.flatnonzero((window.batch.step == step) & (window.lengths >= 4))[:MOST_SEQUENCES]
        if len(rows) < 2:
            continue
        t, s, there = _table(window, rows)
        for i in _suspects(t, s, there):
            cost = _distances(i, t, s, there)
            own[rows[i]] = cost[i]
            cost[i] = np.inf
            choice = int(np.argmin(cost))
            if math.isfinite(cost[choice]):
                best[rows[i]], partner[rows[i]] = cost[choice], rows[choice]
    asked = partner >= 0
    total = float(own[asked].sum())
    if not asked.any() or total <= 0.0:
        return None
    tolerance = float(window.tolerance[window.both].mean()) if window.both.any() else 0.0
    # a sequence is misrouted where nine tenths of its difference go away with another's values
    hit = asked & (own > 10 * tolerance) & (best < 0.1 * own)
    gain = np.where(hit, own - best, 0.0)
    return Routing(hit, float(gain.sum()) / total, positive_mean((own - best)[asked & (own > 10 * tolerance)]))


def _table(
    window: Window, rows: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]:
    """([R, P] trainer, [R, P] engine, [R, P] both there) of the first PREFIX tokens of each row."""
    starts = window.batch.offsets[rows]
    width = int(min(PREFIX, window.lengths[rows].max()))
    places = starts[:, None] + np.arange(width)
    inside = np.arange(width) < window.lengths[rows][:, None]
    places = np.minimum(places, window.batch.tokens - 1)
    there = inside & window.both[places]
    t = np.where(there, window.trainer[places], 0.0).astype(np.float32)
    s = np.where(there, window.engine[places], 0.0).astype(np.float32)
    return t, s, there


def _suspects(t: NDArray[np.float32], s: NDArray[np.float32], there: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Rows whose two sides differ on average by a tenth at least of what tokens differ among themselves."""
    if not there.any():
        return np.zeros(0, np.int64)
    spread = float(t[there].std())
    gap = np.where(there, np.abs(t - s), 0.0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    return np.flatnonzero(gap > 0.1 * spread)


def _distances(i: int, t: NDArray[np.float32], s: NDArray[np.float32], there: NDArray[np.bool_]) -> NDArray[np.float32]:
    """[R] median |t_i - s_j| over the positions both have; infinite below four of them.

    The median, because a foreign row that is cut or filled up fits only as far as it goes.
    """
    both = there & there[i]
    count = both.sum(axis=1)
    gap = np.sort(np.where(both, np.abs(t[i] - s), np.inf).astype(np.float32), axis=1)
    middle = np.take_along_axis(gap, np.maximum((count - 1) // 2, 0)[:, None], axis=1)[:, 0]
    cost: NDArray[np.float32] = np.where(count >= 4, middle, np.inf).astype(np.float32)
    return cost
