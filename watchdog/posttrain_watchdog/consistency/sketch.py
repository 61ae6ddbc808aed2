"""A histogram of floats in buckets of equal relative width: quantiles in one pass and constant memory.

The bucket of a value is the top of its float32 pattern (sign, exponent, four bits of mantissa), so a quantile is
right to 3 % of itself (half a bucket) whatever the scale. Two sketches add up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHIFT = 19
_BUCKETS = 1 << (32 - _SHIFT)


@dataclass(slots=True)
class Sketch:
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BUCKETS, np.int64))

    def feed(self, values: NDArray[np.float32]) -> None:
        """Finite values; others fall into the outermost buckets."""
        self.counts += np.bincount(values.view(np.uint32) >> _SHIFT, minlength=_BUCKETS)

    def add(self, other: Sketch) -> None:
        self.counts += other.counts

    def quantile(self, q: float) -> float:
        """The value below which the share q lies, NaN of nothing."""
        total = int(self.counts.sum())
        if total == 0:
            return float("nan")
        order = _ascending()
        reached = np.cumsum(self.counts[order])
        return float(_middles()[int(np.searchsorted(reached, max(1.0, q * total)))])

    def below(self, value: float) -> float:
        """The share of values whose bucket lies below `value`, NaN of nothing."""
        total = int(self.counts.sum())
        return float(self.counts[_ascending()][_middles() < value].sum()) / total if total else float("nan")

    def histogram(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """(middle, count) of the buckets that hold anything, ascending."""
        counts = self.counts[_ascending()]
        return _middles()[counts > 0], counts[counts > 0]


@cache
def _ascending() -> NDArray[np.int64]:
    """Buckets from the most negative value to the most positive: the patterns of negative floats run backwards."""
    half = _BUCKETS // 2
    return np.concatenate([np.arange(_BUCKETS - 1, half - 1, -1), np.arange(half)])


@cache
def _middles() -> NDArray[np.float64]:
    """The middle of each bucket, ascending; 0 for those that hold zeros and what no logprob resolves."""
    low = (_ascending().astype(np.uint32) << np.uint32(_SHIFT)).astype(np.uint32)
    with np.errstate(invalid="ignore"):
        edges = np.stack([low, low | np.uint32((1 << _SHIFT) - 1)]).view(np.float32).astype(np.float64)
        middle = edges.mean(axis=0)
    middle[np.abs(edges).max(axis=0) < 1e-30] = 0.0
    # buckets of infinities and NaN stay empty; they keep the order
    middle[~np.isfinite(middle)] = np.sign(np.where(np.signbit(edges[0][~np.isfinite(middle)]), -1.0, 1.0)) * 1e38
    ordered: NDArray[np.float64] = middle
    return ordered
