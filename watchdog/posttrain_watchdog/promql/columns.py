"""An instant vector over many steps at once: values[T, S] under a frame of S metrics.

Promises: `present` is None where every cell holds a sample, else [T, S]; values of absent cells mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.frame import EMPTY, Frame

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(slots=True)
class Columns:
    frame: Frame
    values: Floats
    present: Bools | None = None

    @property
    def steps(self) -> int:
        return int(self.values.shape[0])

    def mask(self) -> Bools:
        """[T, S] presence, made where it is implied."""
        return np.ones(self.values.shape, dtype=np.bool_) if self.present is None else self.present

    def filled(self, value: float) -> Floats:
        """[T, S] values with the absent cells set to `value`."""
        return self.values if self.present is None else np.where(self.present, self.values, value)

    def any_present(self) -> Bools:
        """[T] whether the step has any sample."""
        if self.present is None:
            return np.full(self.steps, self.values.shape[1] > 0)
        found: Bools = np.any(self.present, axis=1)
        return found

    def with_values(self, values: Floats) -> Columns:
        return Columns(self.frame, values, self.present)

    def unnamed(self) -> Columns:
        """Without metric names. Raises PromQLError where two series of one step become the same."""
        result = Columns(self.frame.unnamed(), self.values, self.present)
        require_distinct(result)
        return result


def nothing(steps: int) -> Columns:
    return Columns(EMPTY, np.empty((steps, 0), dtype=np.float64))


def require_distinct(columns: Columns) -> None:
    """Raise PromQLError where a step holds two samples of the same metric."""
    twins = columns.frame.twins()
    if twins is None or columns.values.shape[0] == 0:
        return
    counts = np.add.reduceat(columns.mask()[:, twins.order].astype(np.int64), twins.starts, axis=1)
    if (counts > 1).any():
        raise PromQLError("vector cannot contain metrics with the same labelset")


def both(left: Bools | None, right: Bools | None) -> Bools | None:
    """Present in both."""
    if left is None:
        return right
    return left if right is None else left & right
