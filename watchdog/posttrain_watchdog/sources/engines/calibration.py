"""Were the tokens drawn from the distribution that the engine reports, or from a hotter or colder one?

If tokens are drawn from p_b proportional to exp(b * reported logprob), then for a set S of candidates that is fixed
before the draw, and s the sampled token,

    mass:   E[ 1(s in S) - exp((1-b) lp_s) * sum_{i in S} exp(b lp_i) ] = 0
    shape:  E[ 1(s in S) (lp_s - mean of lp over S under exp(b lp)) ]   = 0

The first uses that E[exp((1-b) lp_s)] is 1/Z(b), the unknown normaliser; the second is the score of the conditional
likelihood within S. b = 1 says that the reported numbers are the sampling distribution; reported before a division
by T, b is 1/T. Each equation gives an estimate with a standard error that allows for dependence within a cluster
(one answer, or all answers with the same seed); both are combined by inverse variance.

Promises: numpy only, no I/O. Needs no trainer and no full vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posttrain_watchdog.sources.engines.responses import Position

_LOW, _HIGH = 0.05, 20.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the sampled tokens say of one group of answers with the same settings."""

    positions: int
    clusters: int
    beta: float
    """exponent of the reported distribution that the tokens were drawn from; NaN where it cannot be told"""
    error: float
    """standard error of `beta`"""
    expected_inside: float
    """share of tokens inside the candidate sets, as the engine's numbers promise"""
    observed_inside: float
    z_mass: float
    """the mass equation at b = 1 as a normal deviate: above 0, candidates are drawn more often than promised"""
    z_shape: float
    """the shape equation at b = 1 as a normal deviate: above 0, the better candidates are drawn more often"""

    def distance(self, beta: float) -> float:
        """How far the estimate lies from `beta`, as a normal deviate: Student's t with one degree of freedom less
        than there are clusters, made normal (Wallace 1959). NaN where there are too few clusters to tell.
        """
        if not np.isfinite(self.error):
            return float("nan")
        return _normal((self.beta - beta) / self.error, self.clusters - 1)

    def log_odds(self, raw: float, reported: float = 1.0) -> float:
        """Log of how many times likelier the estimate is if the truth is `raw` than if it is `reported`."""
        return (self.distance(reported) ** 2 - self.distance(raw) ** 2) / 2

    def surprise(self, beta: float = 1.0) -> float:
        """Two-sided probability of an estimate this far from `beta` if the truth is `beta`; 1 where unknown."""
        distance = self.distance(beta)
        return math.erfc(abs(distance) / math.sqrt(2)) if math.isfinite(distance) else 1.0

    @property
    def temperature(self) -> float:
        """Temperature of the sampling distribution over that of the reported one."""
        return 1 / self.beta

    @property
    def temperature_error(self) -> float:
        return self.error / self.beta**2


def calibrate(positions: Sequence[Position], clusters: Sequence[int]) -> Calibration | None:
    """The estimate from positions and the cluster each belongs to; None from nothing."""
    if not positions:
        return None
    width = max(len(p.candidates) for p in positions)
    lists = np.full((len(positions), width), -np.inf)
    for i, each in enumerate(positions):
        lists[i, : len(each.candidates)] = each.candidates
    sampled = np.array([p.logprob for p in positions])
    inside = np.array([p.inside for p in positions], dtype=np.float64)
    names = np.unique(np.asarray(clusters), return_inverse=True)[1]
    estimates = [
        _solve(lambda b: _mass(b, sampled, inside, lists), names),
        _solve(lambda b: _shape(b, sampled, inside, lists), names),
    ]
    known = [(b, e) for b, e in estimates if np.isfinite(b) and np.isfinite(e) and e > 0]
    beta = error = float("nan")
    if known:
        weights = np.array([1 / e**2 for _, e in known])
        beta = float(np.dot(weights, [b for b, _ in known]) / weights.sum())
        error = float(1 / np.sqrt(weights.sum()))
    at_one = [_score(of(1.0, sampled, inside, lists), names) for of in (_mass, _shape)]
    return Calibration(
        len(positions),
        int(names.max()) + 1,
        beta,
        error,
        float(np.exp(lists).sum(axis=1).mean()),
        float(inside.mean()),
        at_one[0],
        at_one[1],
    )


def _normal(t: float, free: float) -> float:
    """Student's t as a normal deviate of the same probability (Wallace 1959); NaN below 4 degrees of freedom."""
    if free < 4:
        return float("nan")
    return float(np.sign(t) * (8 * free + 1) / (8 * free + 3) * np.sqrt(free * np.log1p(t * t / free)))


def _score(moments: NDArray[np.float64], names: NDArray[np.int64]) -> float:
    """The sum of `moments` over its standard error as a normal deviate; 0 where too little is behind it.

    Where a few clusters carry the variance, they are what counts: degrees of freedom fall with the kurtosis.
    """
    sums = np.bincount(names, weights=moments)
    squares = float((sums**2).sum())
    if squares <= 0 or len(sums) < 2:
        return 0.0
    effective = min(float(len(sums)), 3 * squares**2 / float((sums**4).sum()))
    deviate = _normal(float(moments.sum()) / _spread(moments, names), effective - 1)
    return deviate if np.isfinite(deviate) else 0.0


def _mass(
    beta: float, sampled: NDArray[np.float64], inside: NDArray[np.float64], lists: NDArray[np.float64]
) -> NDArray[np.float64]:
    moments: NDArray[np.float64] = inside - np.exp((1 - beta) * sampled) * np.exp(beta * lists).sum(axis=1)
    return moments


def _shape(
    beta: float, sampled: NDArray[np.float64], inside: NDArray[np.float64], lists: NDArray[np.float64]
) -> NDArray[np.float64]:
    weights = np.exp(beta * (lists - lists[:, :1]))
    values = np.where(np.isfinite(lists), lists, 0.0)
    mean = (weights * values).sum(axis=1) / weights.sum(axis=1)
    moments: NDArray[np.float64] = inside * (sampled - mean)
    return moments


def _spread(moments: NDArray[np.float64], names: NDArray[np.int64]) -> float:
    """Standard deviation of the sum of `moments`, sums of clusters being independent."""
    sums = np.bincount(names, weights=moments)
    count = len(sums)
    if count < 2:
        return 0.0
    return float(np.sqrt((sums**2).sum() * count / (count - 1)))


def _solve(of: Callable[[float], NDArray[np.float64]], names: NDArray[np.int64]) -> tuple[float, float]:
    """(root, standard error) of sum(moment(b)) = 0 between the bounds; NaN where there is none."""
    grid = np.geomspace(_LOW, _HIGH, 13)
    sums = np.array([of(float(b)).sum() for b in grid])
    changes = np.flatnonzero(np.sign(sums[:-1]) * np.sign(sums[1:]) < 0)
    if not len(changes):
        return float("nan"), float("nan")
    # the crossing nearest to 1, on the logarithmic scale of the grid
    at = changes[np.argmin(np.abs(np.log(grid[changes])))]
    low, high = float(grid[at]), float(grid[at + 1])
    sign = np.sign(sums[at])
    for _ in range(24):
        middle = (low + high) / 2
        if np.sign(of(middle).sum()) == sign:
            low = middle
        else:
            high = middle
    root = (low + high) / 2
    step = 1e-4 * root
    slope = (of(root + step).sum() - of(root - step).sum()) / (2 * step)
    return root, _spread(of(root), names) / abs(slope) if slope else float("nan")
