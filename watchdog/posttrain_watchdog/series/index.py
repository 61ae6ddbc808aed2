"""Which series there are: metrics, the slots they live in, and postings from label values to slots.

Promises: a slot belongs to one metric at a time; `generation` changes whenever the set of series does.
Never holds a sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from posttrain_watchdog.model import Metric
from posttrain_watchdog.series.matchers import Matcher

NAME = "__name__"


class Index:
    """Metrics by slot, slots by metric, and postings."""

    __slots__ = ("_changed", "_free", "_postings", "_slots", "generation", "metrics")

    def __init__(self) -> None:
        self.metrics: list[Metric | None] = []
        """by slot; None where the slot is free"""
        self.generation = 0
        self._changed: dict[str, int] = {}
        self._slots: dict[Metric, int] = {}
        self._postings: dict[str, dict[str, set[int]]] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._slots)

    def slot(self, metric: Metric) -> int | None:
        return self._slots.get(metric)

    def slots(self, metrics: Sequence[Metric]) -> list[int | None]:
        """The slot of each, None for those not known."""
        return list(map(self._slots.get, metrics))

    def changed(self, name: str | None) -> int:
        """A number that changes when the series of this metric name do; of any name where None."""
        return self.generation if name is None else self._changed.get(name, 0)

    def add(self, metrics: Iterable[Metric]) -> list[int]:
        """Give each new metric a slot; neighbours in name and labels become neighbours in memory."""
        added = []
        for metric in sorted(metrics, key=lambda m: (m.name, m.labels)):
            if self._free:
                slot = self._free.pop()
                self.metrics[slot] = metric
            else:
                slot = len(self.metrics)
                self.metrics.append(metric)
            self._slots[metric] = slot
            for name, value in ((NAME, metric.name), *metric.labels):
                self._postings.setdefault(name, {}).setdefault(value, set()).add(slot)
            added.append(slot)
            self._touch(metric.name)
        return added

    def _touch(self, name: str) -> None:
        self.generation += 1
        self._changed[name] = self.generation

    def renumber(self, older: Index) -> None:
        """Take the place of an older index: no number of it is used again."""
        for name in {*older._changed, *self._changed}:
            self.generation = max(self.generation, older.generation)
            self._touch(name)

    def remove(self, slots: Iterable[int]) -> None:
        """Forget the metrics in these slots; the slots are free again."""
        for slot in slots:
            metric = self.metrics[slot]
            if metric is None:
                continue
            del self._slots[metric]
            self.metrics[slot] = None
            self._free.append(slot)
            for name, value in ((NAME, metric.name), *metric.labels):
                holders = self._postings[name][value]
                holders.discard(slot)
                if not holders:
                    del self._postings[name][value]
                    if not self._postings[name]:
                        del self._postings[name]
            self._touch(metric.name)

    def select(self, matchers: Sequence[Matcher]) -> NDArray[np.int64]:
        """[S] slots whose metrics satisfy every matcher, ascending."""
        found: set[int] | None = None
        # equality first: it is the cheapest and cuts the most
        for matcher in sorted(matchers, key=lambda m: m.operator != "="):
            values = self._postings.get(matcher.name, {})
            if matcher.matches(""):
                unwanted = [slots for value, slots in values.items() if not matcher.matches(value)]
                if found is None:
                    found = set(self._slots.values())
                found = found.difference(*unwanted)
            else:
                if matcher.operator == "=":
                    wanted = values.get(matcher.value, set())
                else:
                    wanted = set().union(*(slots for value, slots in values.items() if matcher.matches(value)))
                found = set(wanted) if found is None else found & wanted
            if not found:
                break
        if found is None:
            found = set(self._slots.values())
        return np.array(sorted(found), dtype=np.int64)

    def label_values(self, name: str) -> list[str]:
        """Every value of a label, sorted."""
        return sorted(self._postings.get(name, {}))

    def label_names(self) -> list[str]:
        """Every label name in use, `__name__` included, sorted."""
        return sorted(self._postings)
