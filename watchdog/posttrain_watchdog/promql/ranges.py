"""Functions of ranges, step by step: cuts each step's window and hands it over, dense columns apart from ragged ones.

Promises: no loop over series; work is counted against a budget, so that no query holds its caller for minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posttrain_watchdog.promql.columns import Bools, Columns, Floats
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.frame import Frame
from posttrain_watchdog.promql.over_time import WindowFunction
from posttrain_watchdog.promql.selecting import Samples
from posttrain_watchdog.promql.windows import Place, Window, ragged
from posttrain_watchdog.series.store import ABSENT_BITS, STALE_BITS

Ints = NDArray[np.int64]
WORK = 3_000_000_000
"""cells that one query may look at: some seconds of work"""


@dataclass(slots=True)
class Budget:
    """What a query may still look at."""

    cells: int = WORK

    def spend(self, cells: int) -> None:
        self.cells -= cells
        if self.cells < 0:
            raise PromQLError("query would look at too many samples: ask for fewer steps, series or a shorter range")


def over_steps(
    function: WindowFunction,
    cut: Callable[[int], Samples],
    frame: Frame,
    places: Sequence[Place],
    scalars: Sequence[Floats],
    *,
    budget: Budget,
) -> Columns:
    """`function` of the window that `cut(t)` gives, for each step t at its place, with the numbers of that step."""
    if len(places) == 1:
        numbers = [float(scalar[0]) for scalar in scalars]
        one, there = _apply(function, numbers, cut(0), places[0], budget)
        if isinstance(there, bool):
            return Columns(frame, one[None, :], None if there else np.zeros((1, len(one)), dtype=np.bool_))
        return Columns(frame, one[None, :], None if there.all() else there[None, :])
    values = np.zeros((len(places), len(frame)))
    present = np.ones(values.shape, dtype=np.bool_)
    for t, place in enumerate(places):
        numbers = [float(scalar[t]) for scalar in scalars]
        values[t], present[t] = _apply(function, numbers, cut(t), place, budget)
    return Columns(frame, values, None if present.all() else present)


def _apply(
    function: WindowFunction, numbers: Sequence[float], samples: Samples, place: Place, budget: Budget
) -> tuple[Floats, Bools | bool]:
    """One step: ([S] values, [S] presence, or one word for all)."""
    block, ticks = samples.values, samples.ticks
    budget.spend(block.size)
    if block.shape[0] == 0:
        return np.zeros(block.shape[1]), False
    # absent and stale cells are NaN, and NaN survives a sum; a true NaN sample only costs the slower way
    odd = np.isnan(block.sum(axis=0))
    if not odd.any():
        result, there = function(Window(ticks[:, None], block, place), *numbers)
        return result, True if there is None else there
    values = np.zeros(block.shape[1])
    present = np.ones(block.shape[1], dtype=np.bool_)
    even, gaps = np.flatnonzero(~odd), np.flatnonzero(odd)
    if len(even):
        values[even], there = function(Window(ticks[:, None], block[:, even], place), *numbers)
        if there is not None:
            present[even] = there
    bits = block[:, gaps].view(np.int64)
    sampled = (bits != ABSENT_BITS) & (bits != STALE_BITS)
    some = sampled.any(axis=0)
    present[gaps[~some]] = False
    gaps = gaps[some]
    if len(gaps) == 0:
        return values, present
    window = ragged(ticks, block[:, gaps], sampled[:, some], place)
    values[gaps], there = function(window, *numbers)
    present[gaps] = True if there is None else there
    return values, present
