"""The steps that an expression is evaluated at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posttrain_watchdog.promql.nodes import When


@dataclass(frozen=True, slots=True)
class Grid:
    """Steps start, start+step, ... up to end, in milliseconds. `first` and `last` are those of the whole query,
    which `@ start()` and `@ end()` mean also inside a subquery."""

    start: int
    end: int
    step: int
    first: int
    last: int

    @property
    def steps(self) -> NDArray[np.int64]:
        """[T]"""
        return np.arange(self.start, self.end + 1, self.step, dtype=np.int64)

    def __len__(self) -> int:
        return max(0, (self.end - self.start) // self.step + 1)

    def moments(self, when: When) -> NDArray[np.int64]:
        """[T] the time that a selector looks at, step by step; [1] where `@` makes it the same for all."""
        if when.at is None:
            return self.steps - when.offset
        at = self.first if when.at == "start" else self.last if when.at == "end" else when.at
        return np.array([at - when.offset], dtype=np.int64)


def instant(moment: int) -> Grid:
    return Grid(moment, moment, 1, moment, moment)
