"""One metric over the steps: bounded arrays, later values win, and what was not finite is kept apart.

Promises: steps ascend without repeats; a step that comes again (after a resume, or from a second source) replaces the
old value; memory is bounded. Never interpolates: a step without a value is simply not there.
"""

from __future__ import annotations

import bisect
import math
from array import array
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEPT = 1024
"""Points kept of each metric."""
HEAD = 20
"""Points kept of a run's start."""


class Track:
    """Values of one metric by step (or by time, for sources that know no step)."""

    __slots__ = ("_cache", "at", "head", "nonfinite", "read")

    def __init__(self) -> None:
        self.at = array("d")
        """step, or seconds where the source has no steps; ascending"""
        self.read = array("d")
        """values, NaN and infinities included"""
        self.head: list[tuple[float, float]] = []
        """the first finite points of all time, (at, value): the run's own start, kept when the rest moves on"""
        self.nonfinite = 0
        """values of all time that were not finite"""
        self._cache: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def put(self, at: float, value: float) -> None:
        self._cache = None
        if not math.isfinite(value):
            self.nonfinite += 1
        elif len(self.head) < HEAD:
            self.head.append((at, value))
        if not self.at or at > self.at[-1]:
            self.at.append(at)
            self.read.append(value)
            if len(self.at) > KEPT + KEPT // 8:
                del self.at[: KEPT // 8], self.read[: KEPT // 8]
            return
        place = bisect.bisect_left(self.at, at)
        if self.at[place] == at:
            self.read[place] = value
        else:
            self.at.insert(place, at)
            self.read.insert(place, value)

    def cut(self, after: float) -> None:
        """Forgets the points behind `after`: the run went back and will come there anew."""
        keep = bisect.bisect_right(self.at, after)
        if keep < len(self.at):
            self._cache = None
            del self.at[keep:], self.read[keep:]
            self.head = [point for point in self.head if point[0] <= after]

    def __len__(self) -> int:
        return len(self.at)

    @property
    def last(self) -> float:
        """The newest value; NaN where there is none."""
        return self.read[-1] if self.read else math.nan

    def finite(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Steps and values of the finite points, float64 [n] each, ascending in step. Not to be written to."""
        if self._cache is None:
            at, read = np.array(self.at), np.array(self.read)  # copies: a view would forbid the arrays to grow
            fine = np.isfinite(read)
            self._cache = (at[fine], read[fine])
        return self._cache


EMPTY = Track()
"""What stands for a metric that never came; nobody puts anything into it."""
