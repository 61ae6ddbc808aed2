"""From selectors to samples: which series, and what they hold at or before each step.

Promises: a selector is resolved once and kept until the set of series changes; its frame survives a change that
does not concern it. Staleness and lookback as Prometheus has them. Never evaluates.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from posttrain_watchdog.promql.columns import Bools, Columns, Floats, nothing
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.frame import Frame
from posttrain_watchdog.promql.grid import Grid
from posttrain_watchdog.promql.nodes import Selector
from posttrain_watchdog.series.index import NAME
from posttrain_watchdog.series.store import ABSENT_BITS, STALE_BITS, Store

Ints = NDArray[np.int64]
SELECTIONS = 4096
COLUMNS = 500_000
"""selectors, and series over all of them, that are kept resolved"""
CELLS = 4_000_000
"""how many cells a range selection works on at once"""
ANSWER = 20_000_000
"""steps times series of one selector: 160 MB"""


@dataclass(slots=True)
class Selected:
    """The series of a selector. `slots` is a slice where they are neighbours: reading them then copies nothing."""

    slots: Ints | slice
    frame: Frame
    changed: int


@dataclass(slots=True)
class Samples:
    """What a range is cut from: [R] times and [R, S] values, absent and stale cells by their bit patterns."""

    ticks: Ints
    values: Floats
    frame: Frame


def fixed_name(selector: Selector) -> str | None:
    """The one metric name that the selector can match, if its text says so."""
    if len(selector.alternatives) != 1:
        return None
    return next((m.value for m in selector.alternatives[0] if m.name == NAME and m.operator == "="), None)


class Selecting:
    """Reads a store for one engine."""

    def __init__(self, store: Store, lookback: int, closed_left: bool) -> None:
        self.store = store
        self.lookback = lookback
        self.side = "left" if closed_left else "right"
        """which way np.searchsorted finds the first tick of a window"""
        self._selected: OrderedDict[object, Selected] = OrderedDict()
        self._columns = 0
        self._frames: WeakValueDictionary[bytes, Frame] = WeakValueDictionary()

    def resolve(self, selector: Selector) -> Selected:
        """The series that satisfy the selector now."""
        key = selector.alternatives
        kept = self._selected.get(key)
        # other names' comings and goings are none of this selector's business
        changed = self.store.index.changed(fixed_name(selector))
        if kept is not None and kept.changed == changed:
            self._selected.move_to_end(key)
            return kept
        found = [self.store.select(matchers) for matchers in key]
        slots = found[0] if len(found) == 1 else np.unique(np.concatenate(found))
        frame = self._frame(slots)
        neighbours = len(slots) > 0 and int(slots[-1]) - int(slots[0]) + 1 == len(slots)
        chosen = slice(int(slots[0]), int(slots[-1]) + 1) if neighbours else slots
        selected = Selected(chosen, frame, changed)
        self._keep(key, selected)
        return selected

    def _frame(self, slots: Ints) -> Frame:
        """One frame for all selectors that mean the same series: what is derived from it is derived once."""
        metrics = tuple(self.store.metrics(slots))
        key = slots.tobytes()
        frame = self._frames.get(key)
        if frame is None or frame.metrics != metrics:
            frame = self._frames[key] = Frame(metrics)
        return frame

    def _keep(self, key: object, selected: Selected) -> None:
        former = self._selected.pop(key, None)
        self._columns += len(selected.frame) - (0 if former is None else len(former.frame))
        self._selected[key] = selected
        while len(self._selected) > 1 and (len(self._selected) > SELECTIONS or self._columns > COLUMNS):
            self._columns -= len(self._selected.popitem(last=False)[1].frame)

    def instants(self, selector: Selector, grid: Grid, stamps: bool = False) -> tuple[Columns, Ints]:
        """The newest sample of each series within lookback of each step; with `stamps`, also its time, [T, S] or
        [T, 1]."""
        selected = self.resolve(selector)
        moments = grid.moments(selector.when)
        if len(grid) * len(selected.frame) > ANSWER:
            raise PromQLError(f"query would make more than {ANSWER:,} samples: ask for fewer steps or series")
        ticks = self.store.ticks
        rows = np.searchsorted(ticks, moments, "right") - 1
        lows = np.searchsorted(ticks, moments - self.lookback, self.side)  # type: ignore[call-overload]
        if len(selected.frame) == 0 or not (rows >= lows).any():
            return nothing(len(grid)), np.zeros((len(grid), 1), dtype=np.int64)
        if len(moments) == 1:
            columns, times = self._newest(selected, int(rows[0]), int(lows[0]))
            if len(grid) != 1:
                columns.values = np.broadcast_to(columns.values, (len(grid), len(columns.frame)))
                if columns.present is not None:
                    columns.present = np.broadcast_to(columns.present, columns.values.shape)
                times = np.broadcast_to(times, (len(grid), times.shape[1]))
            return columns, times
        return self._newest_each(selected, rows, lows, stamps)

    def size(self, selector: Selector, first: int, last: int) -> int:
        """How many cells `samples` would give."""
        low, high = np.searchsorted(self.store.ticks, [first, last + 1], "left").tolist()
        return int(high - low) * len(self.resolve(selector).frame)

    def samples(self, selector: Selector, first: int, last: int) -> Samples:
        """Every tick from `first` to `last`, both included, of the selector's series."""
        selected = self.resolve(selector)
        ticks = self.store.ticks
        low = int(np.searchsorted(ticks, first, "left"))
        high = int(np.searchsorted(ticks, last, "right"))
        return Samples(ticks[low:high], self.store.rows(low, high, selected.slots), selected.frame)

    # --- inside

    def _newest(self, selected: Selected, row: int, low: int) -> tuple[Columns, Ints]:
        """One step: the row itself, and further back for the series that it lacks."""
        values = self.store.rows(row, row + 1, selected.slots)
        ticks = self.store.ticks
        times: Ints = ticks[row : row + 1][None, :]
        odd = np.isnan(values[0])
        if not odd.any():
            return Columns(selected.frame, values), times
        values = values.copy()
        bits = values.view(np.int64)
        missing = np.flatnonzero(bits[0] == ABSENT_BITS)
        if len(missing):
            times = np.full(values.shape, times[0, 0])
            slots = selected.slots
            numbers = np.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
            high = row
            while len(missing) and high > low:
                bottom = max(low, high - 64)
                block = self.store.rows(bottom, high, numbers[missing])
                there = block.view(np.int64) != ABSENT_BITS
                last = high - bottom - 1 - np.argmax(there[::-1], axis=0)
                found = there.any(axis=0)
                into = missing[found]
                values[0, into] = block[last[found], np.flatnonzero(found)]
                times[0, into] = ticks[bottom + last[found]]
                missing = missing[~found]
                high = bottom
        present = (bits != ABSENT_BITS) & (bits != STALE_BITS)
        return Columns(selected.frame, values, None if present.all() else present), times

    def _newest_each(self, selected: Selected, rows: Ints, lows: Ints, stamps: bool) -> tuple[Columns, Ints]:
        """Many steps: carry the number of the newest row with a sample forward, then pick."""
        bottom, top = int(lows.min()), int(rows.max()) + 1
        slots = selected.slots
        numbers = np.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
        wide = max(1, CELLS // max(1, top - bottom))
        values = np.empty((len(rows), len(numbers)), dtype=np.float64)
        times = np.empty(values.shape if stamps else (len(rows), 1), dtype=np.int64)
        present: Bools = np.empty(values.shape, dtype=np.bool_)
        picked = np.maximum(rows - bottom, 0)
        ticks = self.store.ticks[bottom:top]
        for start in range(0, len(numbers), wide):
            part = slice(start, start + wide)
            block = self.store.rows(bottom, top, numbers[part])
            there = block.view(np.int64) != ABSENT_BITS
            newest = np.where(there, np.arange(top - bottom)[:, None], -1)
            np.maximum.accumulate(newest, axis=0, out=newest)
            chosen = newest[picked]
            chosen[rows < lows] = -1
            safe = np.maximum(chosen, 0)
            values[:, part] = np.take_along_axis(block, safe, axis=0)
            if stamps:
                times[:, part] = ticks[safe]
            present[:, part] = (chosen + bottom >= lows[:, None]) & (chosen >= 0)
        present &= values.view(np.int64) != STALE_BITS
        return Columns(selected.frame, values, None if present.all() else present), times
