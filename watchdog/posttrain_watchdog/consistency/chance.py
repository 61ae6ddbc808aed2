"""Tests whose p-values the judges use: small samples, sequences as clusters, permutations with a fixed seed.

Promises: pure functions of arrays. Never a threshold on an effect: what counts as large is for the judges to say.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def normal_tail(z: float) -> float:
    """P(Z >= z)."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def two_sided(z: float) -> float:
    return min(1.0, 2.0 * normal_tail(abs(z)))


def clustered_mean(values: NDArray[np.float64], cluster: NDArray[np.int64]) -> tuple[float, float]:
    """(mean over tokens, its standard error with clusters as the independent units).

    The sandwich estimator for a ratio of cluster sums, with the n/(n-1) correction.
    """
    if len(values) == 0:
        return math.nan, math.inf
    n = int(cluster.max()) + 1
    count = np.bincount(cluster, minlength=n)
    mean = float(values.sum() / len(values))
    residual = np.bincount(cluster, values - mean, n)[count > 0]
    k = len(residual)
    if k < 2:
        return mean, math.inf
    return mean, float(np.sqrt((residual**2).sum() * k / (k - 1)) / len(values))


def clustered_slope(
    x: NDArray[np.float64], y: NDArray[np.float64], cluster: NDArray[np.int64]
) -> tuple[float, float, float]:
    """(slope of y on x through the origin, its cluster-robust standard error, share of sum(y^2) it explains)."""
    sxx, syy = float(x @ x), float(y @ y)
    if sxx <= 0.0 or syy <= 0.0:
        return 0.0, math.inf, 0.0
    slope = float(x @ y) / sxx
    residual = y - slope * x
    score = np.bincount(cluster, x * residual)
    k = int((np.bincount(cluster) > 0).sum())
    if k < 2:
        return slope, math.inf, 0.0
    error = math.sqrt(float((score**2).sum()) * k / (k - 1)) / sxx
    return slope, error, 1.0 - float(residual @ residual) / syy


def sign_test(positive: int, negative: int) -> float:
    """Two-sided p that signs so unequal come from a fair coin (normal approximation, continuity corrected)."""
    n = positive + negative
    if n == 0:
        return 1.0
    return two_sided(max(0.0, abs(positive - negative) - 1.0) / math.sqrt(n))


def rank(values: NDArray[Any]) -> NDArray[np.float64]:
    """Ranks, ties averaged."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middle: NDArray[np.float64] = (ends - (counts - 1) / 2.0).astype(np.float64)
    return middle[inverse]


def correlation(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Pearson's r, 0 where one side is constant."""
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else 0.0


def spearman(x: NDArray[Any], y: NDArray[Any]) -> tuple[float, float]:
    """(rank correlation, two-sided p by Fisher's z)."""
    n = len(x)
    if n < 5:
        return 0.0, 1.0
    r = correlation(rank(x), rank(y))
    bounded = max(-0.999999, min(0.999999, r))
    return r, two_sided(math.atanh(bounded) * math.sqrt((n - 3) / 1.06))


def association(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
    """Phi of two yes/no variables, -1..1; 0 where one of them does not vary."""
    return correlation(a.astype(np.float64), b.astype(np.float64))


def two_classes(values: NDArray[np.float64]) -> tuple[float, float]:
    """(threshold, share of variance between the two sides of it): Otsu's split, the best of all thresholds.

    A normal sample gives a share of 2/pi, a uniform one 3/4; two well-separated classes come close to 1.
    """
    ordered = np.sort(values)
    n = len(ordered)
    if n < 2 or ordered[0] == ordered[-1]:
        return float(ordered[-1]) if n else 0.0, 0.0
    left = np.arange(1, n)
    sums = np.cumsum(ordered)[:-1]
    total = float(ordered.sum())
    between = (sums / left - (total - sums) / (n - left)) ** 2 * left * (n - left) / n
    between[ordered[1:] == ordered[:-1]] = -1.0
    best = int(np.argmax(between))
    spread = float(((ordered - total / n) ** 2).sum())
    return float((ordered[best] + ordered[best + 1]) / 2.0), float(between[best]) / spread
