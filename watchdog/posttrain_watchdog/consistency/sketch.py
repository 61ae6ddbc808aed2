"""A histogram of floats in buckets of equal relative width: quantiles in one pass and constant memory.

The bucket of a value is the top of its float32 pattern (sign, exponent, four bits of mantissa), so a quantile is
right to 3 % of itself (half a bucket) whatever the scale. Two sketches add up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
        half = _BUCKETS // 2
        ascending = np.concatenate([np.arange(_BUCKETS - 1, half - 1, -1), np.arange(half)])
        reached = np.cumsum(self.counts[ascending])
        bucket = int(ascending[np.searchsorted(reached, max(1.0, q * total))])
        edges = np.array([bucket << _SHIFT, (bucket << _SHIFT) | ((1 << _SHIFT) - 1)], np.uint32).view(np.float32)
        # buckets next to 0 hold exact zeros and what no logprob resolves
        return 0.0 if abs(float(edges[1])) < 1e-30 else float(edges.astype(np.float64).mean())
