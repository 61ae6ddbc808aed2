"""Statistics for short, noisy, autocorrelated series: baselines, runs at the end, slopes with honest errors.

Promises: pure functions of arrays, without random numbers. Neighbouring steps share a policy, so no test here counts
points as independent: an ordinary permutation null calls a trend in more than half of all healthy runs.
Sources: Theil 1950 / Sen 1968 (slope), Kendall 1954 (bias of rho), Bayley & Hammersley 1946 (correlated points),
Hampel 1974 (MAD).
"""

from __future__ import annotations

import math
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
_MEMORY = 0.5
"""Least autocorrelation that a trend test allows for."""
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
    p: float
    """one-sided probability of a slope at least this far from 0 without a trend"""
    memory: float
    """autocorrelation of neighbouring residuals that was allowed for"""


def slope(at: NDArray[np.float64], values: NDArray[np.float64], most: int = 60) -> Slope:
    """Theil-Sen slope and its error for correlated noise. Longer series are first averaged down to `most` blocks.

    The residuals' lag-1 correlation rho is estimated, corrected for its bias in short detrended series (Kendall 1954:
    + (1 + 4 rho)/n) and taken to be at least 0.5, as neighbouring steps share a policy; then n points are worth
    n (1 - rho)/(1 + rho), and Student's t with that many less 2 degrees of freedom gives p.
    """
    n = len(at)
    if n > most:
        parts = np.array_split(np.arange(n), most)
        at = np.array([at[p].mean() for p in parts])
        values = np.array([values[p].mean() for p in parts])
        n = most
    fitted = theil_sen(at, values)
    rest = values - fitted * at
    rest = rest - rest.mean()
    power = float(rest @ rest)
    if power <= n * (1e-6 * fitted * (at[-1] - at[0])) ** 2:
        return Slope(fitted, 0.5 if fitted == 0 else 1e-12, _MEMORY)  # a straight line: what is left is rounding
    rho = float(rest[1:] @ rest[:-1]) / power if power > 0 else 0.0
    rho = min(max(rho + (1 + 4 * rho) / n, _MEMORY), 0.95)
    inflated = (1 + rho) / (1 - rho)
    degrees = n / inflated - 2
    around = at - at.mean()
    if degrees <= 0.5:
        return Slope(fitted, 0.5, rho)
    error = math.sqrt(power / (n - 2) / float(around @ around) * inflated)
    return Slope(fitted, student_tail(abs(fitted) / error, degrees), rho)


def student_tail(t: float, degrees: float) -> float:
    """P(T > t) of Student's t, t >= 0; by quadrature over x = t/u, which is smooth for every number of degrees."""
    if t <= 0:
        return 0.5
    u = (np.arange(2000) + 0.5) / 2000
    height = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    density = (1 + (t / u) ** 2 / degrees) ** (-(degrees + 1) / 2) / u**2
    return float(min(0.5, height * t * density.mean()))


def recent_median(track: Track, points: int = RECENT) -> float:
    """Median of the last finite values; NaN where there are none."""
    read = track.finite()[1][-points:]
    return float(np.median(read)) if len(read) else float("nan")


def thirds(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Medians of the first, middle and last third."""
    first, middle, last = (float(np.median(part)) for part in np.array_split(values, 3))
    return first, middle, last


def departure(at: NDArray[np.float64], values: NDArray[np.float64], points: int = 5) -> float:
    """Where the values leave their start for good: the first of the last unbroken run beyond its range and 3 "
    "spreads."""
    head = values[:points]
    limit = max(float(head.max()), float(np.median(head)) + 3 * spread(head))
    beyond = tail_run(values > limit)
    return float(at[len(at) - beyond]) if beyond else float(at[-1])
