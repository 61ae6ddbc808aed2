"""The latest value of every metric and its last 100 steps: what a scrape of the daemon shows.

Promises: a row is stored whole; between two scrapes nothing is lost, because the step windows keep the extremes;
memory is bounded by the number of metrics. Never reads a clock.

Rows are queued as they come and settled together: lines of one dialect share their keys, so a block of them is
one matrix, and storing costs a fraction of a microsecond a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from posttrain_watchdog.model import Metric, Row
from posttrain_watchdog.vocabulary import METRICS, WINDOWS, window_specs

DEPTH = max(WINDOWS)
_GROWTH = 64
_MOST_QUEUED = 4096
"""rows that wait to be stored together: more would cost memory, with a backlog of millions, and save no time"""
_STATS = ("min", "max", "mean")


@dataclass(frozen=True, slots=True)
class _Layout:
    """What a snapshot holds, for as long as no series comes or goes."""

    size: int
    live: NDArray[np.int64]
    windowed: NDArray[np.int64]
    named: tuple[Metric, ...]


class LiveSeries:
    """Live gauges and counters of one run. `labels` are added to every series (run, ...)."""

    def __init__(self, labels: Mapping[str, str] | None = None, max_series: int = 20_000) -> None:
        self._labels = dict(labels or {})
        self._max = max_series
        self._slots: dict[Metric, int] = {}
        self._metrics: list[Metric] = []
        self._latest = np.full(_GROWTH, np.nan)
        self._rings = np.full((_GROWTH, DEPTH), np.nan)
        self._last_step = np.full(_GROWTH, -1, dtype=np.int64)
        self._queue: list[Row] = []
        self._windowed: list[int] = []
        self._gone: set[int] = set()
        self._layout: _Layout | None = None
        self._keysets: dict[tuple[Metric, ...], NDArray[np.int64]] = {}
        self.dropped = 0
        """readings refused because `max_series` was reached"""

    def add(self, row: Row) -> None:
        """Queues the readings of one record."""
        self._queue.append(row)
        if len(self._queue) >= _MOST_QUEUED:
            self.settle()

    def set(self, metric: Metric, value: float) -> None:
        """Sets one gauge at once, outside the step windows."""
        self._latest_slot(metric, value)

    def increment(self, metric: Metric, by: float = 1.0) -> None:
        """Adds to a counter, which begins at 0."""
        slot = self._slot(metric)
        if slot is None:
            self.dropped += 1
            return
        now = self._latest[slot]
        self._latest[slot] = by if np.isnan(now) else now + by

    def forget(self, metric: Metric) -> None:
        """Makes the series end: its source is gone. A later value revives it."""
        slot = self._slots.get(metric)
        if slot is not None and slot not in self._gone:
            self._gone.add(slot)
            self._layout = None

    def value(self, metric: Metric) -> float | None:
        """The latest value, or None where there is none."""
        self.settle()
        slot = self._slots.get(metric)
        return None if slot is None or slot in self._gone else float(self._latest[slot])

    def last(self) -> dict[str, float]:
        """Latest values by written name, without the labels that every series of the run carries."""
        self.settle()
        return {repr(m): float(self._latest[i]) for m, i in self._slots.items() if i not in self._gone}

    def settle(self) -> None:
        """Stores the queued rows."""
        queue, self._queue = self._queue, []
        for keys, rows in groupby(queue, key=lambda row: tuple(row.values)):
            if keys:
                self._store(keys, list(rows))

    def snapshot(self) -> tuple[Sequence[Metric], NDArray[np.float64]]:
        """All live series with the run's labels, step windows included: (metrics, values), in step.

        The sequence of metrics is the same object as long as the set of series does not change.
        """
        self.settle()
        n = len(self._metrics)
        if self._layout is None or self._layout.size != n:
            self._layout = self._lay_out()
        layout = self._layout
        parts = [self._latest[layout.live]]
        if layout.windowed.size:
            for window in WINDOWS:
                parts.extend(_statistics(self._rings[layout.windowed, -window:]))
        return layout.named, np.concatenate(parts)

    def _lay_out(self) -> _Layout:
        live = [i for i in range(len(self._metrics)) if i not in self._gone]
        windowed = [i for i in self._windowed if i not in self._gone]
        named = [self._metrics[i].with_labels(self._labels) for i in live]
        for window in WINDOWS:
            extra = {**self._labels, "window": str(window)}
            for stat in _STATS:
                ringed = (self._metrics[i] for i in windowed)
                named.extend(Metric(f"{m.name}_window_{stat}", m.labels).with_labels(extra) for m in ringed)
        return _Layout(
            size=len(self._metrics),
            live=np.array(live, dtype=np.int64),
            windowed=np.array(windowed, dtype=np.int64),
            named=tuple(named),
        )

    def _slot(self, metric: Metric) -> int | None:
        slot = self._slots.get(metric)
        if slot is not None:
            if slot in self._gone:
                self._gone.discard(slot)
                self._layout = None
            return slot
        slot = len(self._metrics)
        if slot >= self._max:
            return None
        if slot >= len(self._latest):
            more = max(_GROWTH, slot)
            self._latest = np.concatenate([self._latest, np.full(more, np.nan)])
            self._rings = np.concatenate([self._rings, np.full((more, DEPTH), np.nan)])
            self._last_step = np.concatenate([self._last_step, np.full(more, -1, dtype=np.int64)])
        self._slots[metric] = slot
        self._metrics.append(metric)
        spec = METRICS.get(metric.name)
        if spec is not None and window_specs(spec):
            self._windowed.append(slot)
        return slot

    def _latest_slot(self, metric: Metric, value: float) -> None:
        slot = self._slot(metric)
        if slot is None:
            self.dropped += 1
        else:
            self._latest[slot] = value

    def _store(self, keys: tuple[Metric, ...], rows: list[Row]) -> None:
        slots = self._keysets.get(keys)
        if slots is None:
            found = [self._slot(k) for k in keys]
            if None in found:
                self.dropped += found.count(None) * len(rows)
                kept = tuple(k for k, s in zip(keys, found, strict=True) if s is not None)
                if kept:
                    self._store(kept, [Row({k: r.values[k] for k in kept}, r.step, r.time) for r in rows])
                return
            slots = np.array(found, dtype=np.int64)
            if len(self._keysets) < 4096:
                self._keysets[keys] = slots
        if self._gone:
            for key in keys:
                self._slot(key)
        block = np.array([list(r.values.values()) for r in rows], dtype=np.float64)
        self._latest[slots] = block[-1]
        self._remember(slots, block, [r.step for r in rows])

    def _remember(self, slots: NDArray[np.int64], block: NDArray[np.float64], steps: list[int | None]) -> None:
        """Puts the values of rows that belong to a step into the rings; a step told twice counts once."""
        kept = [(i, s) for i, s in enumerate(steps) if s is not None]
        if not kept:
            return
        last = [(i, s) for n, (i, s) in enumerate(kept) if n + 1 == len(kept) or kept[n + 1][1] != s][-DEPTH:]
        block = block[[i for i, _ in last]]
        count = len(block)
        first_step, final_step = last[0][1], last[-1][1]
        if np.any(self._last_step[slots] == first_step):
            again = slots[self._last_step[slots] == first_step]
            self._rings[again, 1:] = self._rings[again, :-1].copy()
            self._rings[again, 0] = np.nan
        rings = self._rings[slots]
        rings[:, : DEPTH - count] = rings[:, count:].copy()
        rings[:, DEPTH - count :] = block.T
        self._rings[slots] = rings
        self._last_step[slots] = final_step


def _statistics(ring: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """min, max, mean over the finite values of each row; NaN where a row has none."""
    finite = np.isfinite(ring)
    count = finite.sum(axis=1)
    none = count == 0
    low = np.where(finite, ring, np.inf).min(axis=1)
    high = np.where(finite, ring, -np.inf).max(axis=1)
    mean = np.where(finite, ring, 0.0).sum(axis=1) / np.maximum(count, 1)
    return [np.where(none, np.nan, each) for each in (low, high, mean)]
