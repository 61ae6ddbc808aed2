"""The samples of a range vector at one step: values[W, S] with their times, dense or ragged.

Promises: in a ragged window the samples of each series are pushed to the top rows, `count` of them, in order of
time; the rest is NaN. So a function needs no knowledge of gaps and of staleness markers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a window lies, milliseconds: its ends, and the step that asks (not `end` with offset or @)."""

    start: int
    end: int
    step: int


@dataclass(slots=True)
class Window:
    """`times` is [W, 1] where all series share them (dense) and [W, S] otherwise. Milliseconds."""

    times: Ints
    values: Floats
    place: Place
    count: Ints | None = None
    """[S] samples a series; None where the window is dense"""

    @property
    def rows(self) -> int:
        return int(self.values.shape[0])

    def valid(self) -> Bools | None:
        """[W, S] where there is a sample; None where everywhere."""
        if self.count is None:
            return None
        return np.arange(self.rows)[:, None] < self.count[None, :]

    def counts(self) -> Ints:
        """[S]"""
        return np.full(self.values.shape[1], self.rows, dtype=np.int64) if self.count is None else self.count

    def back(self, rank: int) -> tuple[Ints, Floats]:
        """([S] times, [S] values) of the rank-th newest sample, 0 the newest. Only where count > rank."""
        if self.count is None:
            row = self.rows - 1 - rank
            return np.broadcast_to(self.times[row], self.values.shape[1:]), self.values[row]
        rows = np.maximum(self.count - 1 - rank, 0)
        columns = np.arange(self.values.shape[1])
        return self.times[rows, columns], self.values[rows, columns]

    def front(self) -> tuple[Ints, Floats]:
        """([S] times, [S] values) of the oldest sample."""
        return np.broadcast_to(self.times[0], self.values.shape[1:]), self.values[0]


def ragged(times: Ints, values: Floats, present: Bools, place: Place) -> Window:
    """A window from [W] times, [W, S] values and where there is a sample."""
    count = present.sum(axis=0)
    order = np.argsort(~present, axis=0, kind="stable")
    height = int(count.max(initial=0))
    order = order[:height]
    packed = np.take_along_axis(values, order, axis=0)
    packed[np.arange(height)[:, None] >= count[None, :]] = np.nan
    return Window(times[order], packed, place, count)
