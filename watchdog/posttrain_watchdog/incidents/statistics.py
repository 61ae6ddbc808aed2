"""Statistics for short, noisy, autocorrelated series: baselines, runs at the end, slopes with honest errors.

Promises: pure functions of arrays; the bootstrap is over blocks, because neighbouring steps share a policy and an
ordinary permutation null calls a trend in more than half of all healthy runs; its random numbers are seeded, so the
same history gives the same answer.
Sources: Theil 1950 / Sen 1968 (slope), Künsch 1989 (block bootstrap), Hampel 1974 (MAD).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.incidents.track import Track

if TYPE_CHECKING:
    from numpy.typing import NDArray

STARTING = 5
"""Points at the least from which a baseline is made."""
RECENT = 5
"""Points that stand for the present."""
_GAUSS = 1.4826
"""MAD to standard deviation of a normal distribution"""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Where a metric was when the run began."""

    middle: float
    """median"""
    spread: float
    """MAD as a standard deviation; at least a thousandth of the middle, because logs are rounded"""
    low: float
    high: float
    points: int


def spread(values: NDArray[np.float64]) -> float:
    """Median absolute deviation, scaled to a standard deviation. 0 for fewer than 2 values."""
    return float(np.median(np.abs(values - np.median(values)))) * _GAUSS if len(values) > 1 else 0.0


def baseline(track: Track, points: int = 10) -> Baseline | None:
    """From the first `points` finite values of all time; None while there are fewer than STARTING."""
    head = np.array([value for _, value in track.head[:points]])
    if len(head) < STARTING:
        return None
    middle = float(np.median(head))
    wide = max(spread(head), abs(middle) * 1e-3, 1e-12)
    return Baseline(middle, wide, float(head.min()), float(head.max()), len(head))


def tail_run(flags: NDArray[np.bool_]) -> int:
    """How many flags at the end are true."""
    if not len(flags) or not flags[-1]:
        return 0
    false = np.flatnonzero(~flags)
    return len(flags) if not len(false) else len(flags) - 1 - int(false[-1])


def last_run(flags: NDArray[np.bool_], within: int = RECENT) -> tuple[int, int]:
    """(start, length) of the last run of true flags that ends at most `within` places before the end; length 0: "
    "none."""
    true = np.flatnonzero(flags)
    if not len(true) or true[-1] < len(flags) - within:
        return 0, 0
    end = int(true[-1])
    length = tail_run(flags[: end + 1])
    return end - length + 1, length


def theil_sen(at: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """Median of the slopes between all pairs of points; 0 for fewer than 2."""
    i, j = np.triu_indices(len(at), 1)
    run = at[j] - at[i]
    keep = run > 0
    return float(np.median((values[j] - values[i])[keep] / run[keep])) if keep.any() else 0.0


@dataclass(frozen=True, slots=True)
class Slope:
    per_step: float
    low: float
    """lower bound at one-sided error 0.5 % by the block bootstrap"""
    high: float
    p: float
    """one-sided probability of a slope at least this far from 0 without a trend"""


def slope(at: NDArray[np.float64], values: NDArray[np.float64], draws: int = 200, most: int = 60) -> Slope:
    """Slope and its error under autocorrelation: residuals of the fitted line are redrawn in blocks of about n^(1/3)
    to a quarter of n, longer where the residuals are correlated. Series longer than `most` are averaged down first."""
    n = len(at)
    if n > most:
        parts = np.array_split(np.arange(n), most)
        at = np.array([at[p].mean() for p in parts])
        values = np.array([np.median(values[p]) for p in parts])
        n = most
    fitted = theil_sen(at, values)
    line = fitted * at + np.median(values - fitted * at)
    rest = values - line
    rest = rest - rest.mean()
    block = _block_length(rest)
    random = np.random.default_rng(n)
    starts = random.integers(0, n - block + 1, size=(draws, -(-n // block)))
    places = (starts[..., None] + np.arange(block)).reshape(draws, -1)[:, :n]
    i, j = np.triu_indices(n, 1)
    run = at[j] - at[i]
    keep = run > 0
    i, j, run = i[keep], j[keep], run[keep]
    drawn = rest[places]
    error = np.median((drawn[:, j] - drawn[:, i]) / run, axis=1)
    # blocks of a fitted line's residuals understate the error of few blocks; scale up as for a t with n/block degrees
    error = error * np.sqrt(n / max(n - 2 * block, 1))
    scale = float(np.std(error)) or 1e-300
    p = max(float(np.mean(np.abs(error) >= abs(fitted))) / 2, _upper(abs(fitted) / scale))
    low, high = np.quantile(error, [0.005, 0.995])
    return Slope(fitted, fitted + float(low), fitted + float(high), p)


def _block_length(rest: NDArray[np.float64]) -> int:
    n = len(rest)
    power = float(rest @ rest)
    lag1 = float(rest[1:] @ rest[:-1]) / power if power > 0 else 0.0
    memory = (1 + max(lag1, 0.0)) / (1 - min(max(lag1, 0.0), 0.9))
    return int(np.clip(round(n ** (1 / 3) * memory), 2, max(2, n // 4)))


def _upper(z: float) -> float:
    """A bound on the normal distribution's upper tail."""
    return float(min(0.5, 0.5 * np.exp(-(z**2) / 2)))
