"""A bounded store of samples: time by series matrices, one clock for all series.

Promises: whole ticks in O(series) and whole windows out without a loop over series; hard caps on series and on
points, the oldest dropped first and counted; staleness as Prometheus has it (its NaN bit pattern).
Never reads the clock, never touches a disk, never accepts a sample older than the newest tick.

Layout: blocks of 64 ticks, [ticks, slots] float64 each, as wide as the series known when it was written. Time is
the first axis, because a tick is written, and an instant is read, as one contiguous row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posttrain_watchdog.model import Metric
from posttrain_watchdog.series.index import Index
from posttrain_watchdog.series.matchers import Matcher

STALE_BITS = 0x7FF0000000000002
"""Prometheus' staleness marker (prometheus@2.42 model/value/value.go StaleNaN)"""
ABSENT_BITS = 0x7FF0000000000A55
"""no sample of this series at this tick; a pattern of our own that never leaves the store"""
STALE: float = float(np.array([STALE_BITS], dtype=np.uint64).view(np.float64)[0])
ROWS = 64

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


_NOTHING: tuple[tuple[Metric, ...], Ints] = ((), np.empty(0, dtype=np.int64))


class OutOfOrderError(ValueError):
    """A sample is older than the newest tick."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The hard caps. 10,000 series at 15 s for 6 h are 14.4 million points of 8 bytes."""

    max_series: int = 10_000
    max_points: int = 16_000_000
    retention: float = 6 * 3600.0
    """seconds; ticks older than this are let go a block at a time"""


class _Block:
    """64 ticks. `used` rows are written; slots from `width` on are absent in all of them."""

    __slots__ = ("used", "values", "width")

    def __init__(self, capacity: int) -> None:
        self.values: Floats = np.empty((ROWS, capacity), dtype=np.float64)
        self.used = 0
        self.width = 0

    def widen(self, width: int, capacity: int) -> None:
        """Make the slots up to `width` exist, absent so far."""
        if width <= self.width:
            return
        if width > self.values.shape[1]:
            grown = np.empty((ROWS, capacity), dtype=np.float64)
            grown[: self.used, : self.width] = self.values[: self.used, : self.width]
            self.values = grown
        self.values.view(np.int64)[: self.used, self.width : width] = ABSENT_BITS
        self.width = width


class Store:
    """See the module. Times are seconds since the epoch outside and whole milliseconds inside, as in Prometheus."""

    def __init__(self, settings: StoreSettings | None = None) -> None:
        self.settings = settings or StoreSettings()
        self.index = Index()
        self.version = 0
        """changes with every write"""
        self.dropped_points = 0
        """points let go because of `max_points` (retention does not count)"""
        self.dropped_series = 0
        """series let go, or refused, because of `max_series`"""
        self._blocks: list[_Block] = []
        self._times: Ints = np.empty(ROWS, dtype=np.int64)
        self._first = 0
        self._end = 0
        self._last_seen: Ints = np.empty(0, dtype=np.int64)
        self._written: dict[str, tuple[Sequence[Metric], Ints]] = {}

    # --- what is in it

    @property
    def generation(self) -> int:
        """Changes whenever the set of series does."""
        return self.index.generation

    @property
    def series(self) -> int:
        return len(self.index)

    @property
    def points(self) -> int:
        """Cells in use, absent ones included: what the cap counts."""
        return sum(block.used * block.width for block in self._blocks)

    @property
    def ticks(self) -> Ints:
        """[W] retained ticks in milliseconds, ascending; a view, valid until the next write."""
        return self._times[self._first : self._end]

    @property
    def last_time(self) -> float | None:
        """Seconds of the newest tick."""
        return float(self._times[self._end - 1]) / 1000 if self._end > self._first else None

    def select(self, matchers: Sequence[Matcher]) -> Ints:
        """[S] slots of the series that satisfy every matcher."""
        return self.index.select(matchers)

    def metrics(self, slots: Ints) -> list[Metric]:
        found = [self.index.metrics[slot] for slot in slots.tolist()]
        return [metric for metric in found if metric is not None]

    def rows(self, low: int, high: int, slots: Ints | slice) -> Floats:
        """[high-low, S] samples of ticks low..high-1; absent cells carry ABSENT_BITS. A view where possible."""
        width = slots.stop if isinstance(slots, slice) else (int(slots[-1]) + 1 if len(slots) else 0)
        parts = []
        for number in range(low // ROWS, -(-high // ROWS)):
            block = self._blocks[number]
            start, stop = max(low - number * ROWS, 0), min(high - number * ROWS, ROWS)
            if width <= block.width:
                parts.append(block.values[start:stop, slots])
                continue
            shape = slots.stop - slots.start if isinstance(slots, slice) else len(slots)
            part = np.empty((stop - start, shape), dtype=np.float64)
            part.view(np.int64)[:] = ABSENT_BITS
            if isinstance(slots, slice):
                there = max(block.width - slots.start, 0)
                part[:, :there] = block.values[start:stop, slots.start : slots.start + there]
            else:
                there = int(np.searchsorted(slots, block.width))
                part[:, :there] = block.values[start:stop, slots[:there]]
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return np.empty((0, slots.stop - slots.start if isinstance(slots, slice) else len(slots)))
        return np.concatenate(parts)

    # --- writing

    def append(self, time: float, metrics: Sequence[Metric], values: ArrayLike, *, writer: str | None = None) -> None:
        """Add one sample to each metric at `time`; a second call at the newest time adds to the same tick.

        With a `writer`, series that it wrote in its previous call and leaves out now get a staleness marker, as
        after a scrape or a rule evaluation in Prometheus. Raises OutOfOrderError for a time before the newest tick.
        """
        if not metrics and (writer is None or not len(self._written.get(writer, _NOTHING)[1])):
            return  # a rule without alerts has nothing to say, tick after tick
        when = round(time * 1000)
        numbers = np.asarray(values, dtype=np.float64)
        if numbers.shape != (len(metrics),):
            raise ValueError(f"{len(metrics)} metrics, but values of shape {numbers.shape}")
        newest = self._times[self._end - 1] if self._end > self._first else None
        if newest is not None and when < newest:
            raise OutOfOrderError(f"sample at {when / 1000:.3f} s, but the newest tick is {newest / 1000:.3f} s")
        # a new tick first: it may let series go whose slots would otherwise be found, and then be free
        if when != newest:
            self._begin_tick(when)
        slots = self._slots_of(metrics, writer)
        block = self._blocks[-1]
        row = block.values[block.used - 1]
        kept = slots >= 0
        if not kept.all():
            slots, numbers = slots[kept], numbers[kept]
        row[slots] = numbers
        self._last_seen[slots] = when
        if writer is not None:
            previous = self._written.get(writer)
            if previous is not None and previous[1] is not slots:
                gone = np.setdiff1d(previous[1], slots)
                row.view(np.int64)[gone] = STALE_BITS
            self._written[writer] = (metrics, slots)
        self.version += 1

    def append_values(self, time: float, values: Mapping[Metric, float], *, writer: str | None = None) -> None:
        """The same from a mapping."""
        self.append(time, tuple(values), np.fromiter(values.values(), np.float64, len(values)), writer=writer)

    def end_writer(self, time: float, writer: str) -> None:
        """A staleness marker for everything that this writer wrote last: it will not write again."""
        self.append(time, (), (), writer=writer)
        self._written.pop(writer, None)

    def mark_stale(self, time: float, metrics: Iterable[Metric]) -> None:
        """A staleness marker for each of these series that is known."""
        known = [metric for metric in metrics if self.index.slot(metric) is not None]
        if known:
            self.append(time, known, np.full(len(known), STALE))

    def load(self, series: Iterable[tuple[Metric, Sequence[float], Sequence[float]]]) -> None:
        """Add samples at any times, before or between ticks too: (metric, seconds, values) each.

        Rebuilds the whole store: for tests and finished recordings, not for live use.
        """
        new = [(m, np.round(np.asarray(t, dtype=np.float64) * 1000).astype(np.int64), v) for m, t, v in series]
        every = tuple(slot for slot, metric in enumerate(self.index.metrics) if metric is not None)
        old = self.metrics(np.array(every, dtype=np.int64))
        old_ticks = self.ticks.copy()
        old_rows = self.rows(0, len(old_ticks), np.array(every, dtype=np.int64))
        ticks = np.unique(np.concatenate([old_ticks, *(t for _, t, _ in new)]))
        columns = {metric: i for i, metric in enumerate(dict.fromkeys([*old, *(m for m, _, _ in new)]))}
        whole = np.empty((len(ticks), len(columns)), dtype=np.float64)
        whole.view(np.int64)[:] = ABSENT_BITS
        whole[np.searchsorted(ticks, old_ticks), : len(old)] = old_rows
        for metric, times, values in new:
            whole[np.searchsorted(ticks, times), columns[metric]] = np.asarray(values, dtype=np.float64)
        fresh = Store(self.settings)
        metrics = tuple(columns)
        present = whole.view(np.int64) != ABSENT_BITS
        for i, tick in enumerate(ticks.tolist()):
            there = np.flatnonzero(present[i])
            fresh.append(tick / 1000, [metrics[j] for j in there], whole[i, there])
        fresh.index.renumber(self.index)
        fresh.version += self.version
        self.__dict__.update(fresh.__dict__)

    # --- inside

    def _capacity(self, width: int) -> int:
        return min(self.settings.max_series, max(64, 1 << math.ceil(math.log2(max(width, 1)))))

    def _begin_tick(self, when: int) -> None:
        if not self._blocks or self._blocks[-1].used == ROWS:
            self._let_go(when)
            self._blocks.append(_Block(self._capacity(len(self.index.metrics))))
        block = self._blocks[-1]
        width = len(self.index.metrics)
        block.widen(width, self._capacity(width))
        block.values.view(np.int64)[block.used, :width] = ABSENT_BITS
        block.used += 1
        if self._end == len(self._times):
            kept = self.ticks
            room = np.empty(max(ROWS, 2 * len(kept)), dtype=np.int64)
            room[: len(kept)] = kept
            self._times, self._first, self._end = room, 0, len(kept)
        self._times[self._end] = when
        self._end += 1

    def _let_go(self, when: int) -> None:
        """Drop the oldest blocks until retention and the cap on points are kept, then the series left empty."""
        before = len(self._blocks)
        room = ROWS * len(self.index.metrics)
        while self._blocks:
            newest_of_oldest = int(self._times[self._first + self._blocks[0].used - 1])
            expired = newest_of_oldest < when - self.settings.retention * 1000
            if not expired:
                if self.points + room <= self.settings.max_points:
                    break
                oldest = self._blocks[0]
                cells = oldest.values.view(np.int64)[: oldest.used, : oldest.width]
                self.dropped_points += int(np.count_nonzero(cells != ABSENT_BITS))
            self._first += self._blocks[0].used
            del self._blocks[0]
        if len(self._blocks) < before:
            horizon = int(self._times[self._first]) if self._end > self._first else when
            empty = np.flatnonzero(self._last_seen < horizon)
            self._forget([slot for slot in empty.tolist() if self.index.metrics[slot] is not None])

    def _forget(self, slots: Sequence[int]) -> None:
        """Remove series; their old samples go with them, because the slot will be another's."""
        if not slots:
            return
        self.index.remove(slots)
        chosen = np.array(slots, dtype=np.int64)
        for block in self._blocks:
            block.values.view(np.int64)[: block.used, chosen[chosen < block.width]] = ABSENT_BITS
        self._last_seen[chosen] = np.iinfo(np.int64).max
        for writer, (metrics, written) in self._written.items():
            if np.isin(written, chosen).any():
                self._written[writer] = (metrics, written[~np.isin(written, chosen)])

    def _slots_of(self, metrics: Sequence[Metric], writer: str | None) -> Ints:
        """[S] slots, -1 for series refused at the cap. The same sequence again costs nothing."""
        if writer is not None:
            previous = self._written.get(writer)
            if previous is not None and previous[0] is metrics and len(previous[1]) == len(metrics):
                return previous[1]
        found = self.index.slots(metrics)
        missing = list(dict.fromkeys(m for m, slot in zip(metrics, found, strict=True) if slot is None))
        if missing:
            room = self.settings.max_series - len(self.index)
            if len(missing) > room:
                needed = {slot for slot in found if slot is not None}
                left_out = set(self._written[writer][1].tolist()) - needed if writer in self._written else set()
                self._make_room(len(missing) - room, needed, left_out)
                room = self.settings.max_series - len(self.index)
                self.dropped_series += max(0, len(missing) - room)
            added = self.index.add(missing[:room])
            width = len(self.index.metrics)
            if width > len(self._last_seen):
                more = np.full(self._capacity(width) - len(self._last_seen), np.iinfo(np.int64).max)
                self._last_seen = np.concatenate([self._last_seen, more])
            if self._blocks and added:
                self._blocks[-1].widen(width, self._capacity(width))
            found = self.index.slots(metrics)
        return np.array([-1 if slot is None else slot for slot in found], dtype=np.int64)

    def _make_room(self, wanted: int, needed: set[int], left_out: set[int]) -> None:
        """Drop up to `wanted` series, longest silent first; never one that got a sample at the tick before this one
        or since, unless its writer leaves it out now."""
        newest = int(self._times[self._end - 2]) if self._end - 1 > self._first else 0
        candidates = [
            (int(self._last_seen[slot]), slot)
            for slot, metric in enumerate(self.index.metrics)
            if metric is not None and slot not in needed and (slot in left_out or int(self._last_seen[slot]) < newest)
        ]
        victims = [slot for _, slot in sorted(candidates)[:wanted]]
        self.dropped_series += len(victims)
        self._forget(victims)
