"""The labels of a vector, column by column, and everything that is derived from labels alone.

Promises: what depends on labels only (groups, signatures, names dropped) is computed once per set of series and
kept with it, so that an evaluation touches numbers and nothing else. Never holds a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from posttrain_watchdog.model import LabelPairs, Metric
from posttrain_watchdog.series.index import NAME

T = TypeVar("T")
Ints = NDArray[np.int64]
MEMO_LIMIT = 64


class Groups:
    """A partition of the columns: `of[S]` group of each column, `frame` the labels of each of the G groups."""

    __slots__ = ("frame", "of", "order", "starts")

    def __init__(self, of: Ints, frame: Frame) -> None:
        self.of = of
        self.frame = frame
        self.order = np.argsort(of, kind="stable")
        """[S] columns, group by group"""
        self.starts = np.searchsorted(of[self.order], np.arange(len(frame)))
        """[G] where each group begins in `order`"""


class Frame:
    """An immutable sequence of metrics with a memo.

    A `passing` frame depends on values (topk, count_values) and is another one at the next evaluation: what joins
    it with a lasting frame is not kept with the latter.
    """

    __slots__ = ("__weakref__", "_memo", "metrics", "passing")

    def __init__(self, metrics: Sequence[Metric], passing: bool = False) -> None:
        self.metrics = tuple(metrics)
        self.passing = passing
        self._memo: dict[Hashable, object] = {}

    def __len__(self) -> int:
        return len(self.metrics)

    def derive(self, key: Hashable, make: Callable[[], T]) -> T:
        """`make()`, computed once for this key."""
        found = self._memo.get(key)
        if found is None:
            if len(self._memo) >= MEMO_LIMIT:
                self._memo.clear()
            found = self._memo[key] = make()
        return found  # type: ignore[return-value]

    def with_other(self, other: Frame, key: Hashable, make: Callable[[], T]) -> T:
        """`make()`, kept for this pair of frames as long as both last. The other one lives in the memo too, so that
        its id stays its own."""
        if other.passing and not self.passing:
            return make()
        return self.derive((key, id(other)), lambda: (make(), other))[0]

    def unnamed(self) -> Frame:
        """The same columns without metric names."""
        return self.derive(
            "unnamed", lambda: Frame([Metric("", m.labels) if m.name else m for m in self.metrics], self.passing)
        )

    def twins(self) -> Groups | None:
        """Columns grouped by identical metric; None where all metrics differ."""

        def make() -> list[Groups | None]:
            if len(set(self.metrics)) == len(self.metrics):
                return [None]
            of, firsts = number(self.metrics)
            return [Groups(of, Frame([self.metrics[i] for i in firsts]))]

        return self.derive("twins", make)[0]

    def signatures(self, on: bool, labels: tuple[str, ...]) -> Sequence[Hashable]:
        """[S] what binary operators match by: the labels of `on`, or all but the name and those of `ignoring`."""

        def make() -> Sequence[Hashable]:
            if on:
                return [tuple(value_of(m, name) for name in labels) for m in self.metrics]
            ignored = set(labels)
            if not ignored:
                return [m.labels for m in self.metrics]
            return [tuple(pair for pair in m.labels if pair[0] not in ignored) for m in self.metrics]

        return self.derive(("signatures", on, labels), make)

    def grouped(self, labels: tuple[str, ...], without: bool) -> Groups:
        """The groups of `by (labels)` or `without (labels)`."""

        def make() -> Groups:
            metrics = [kept(m, labels, without) for m in self.metrics]
            of, firsts = number(metrics)
            return Groups(of, Frame([metrics[i] for i in firsts], self.passing))

        return self.derive(("grouped", labels, without), make)

    def joined(self, other: Frame) -> Frame:
        """These columns, then those of the other."""
        passing = self.passing or other.passing
        return self.with_other(other, "joined", lambda: Frame(self.metrics + other.metrics, passing))

    def taken(self, columns: Ints) -> Frame:
        """Some of these columns, chosen by value."""
        return Frame([self.metrics[i] for i in columns.tolist()], passing=True)


EMPTY = Frame(())
NAMELESS = Frame((Metric(""),))


def value_of(metric: Metric, name: str) -> str:
    """The value of a label, "" where absent."""
    if name == NAME:
        return metric.name
    for key, value in metric.labels:
        if key == name:
            return value
    return ""


def with_labels(metric: Metric, changes: dict[str, str]) -> Metric:
    """The metric with labels set, or removed where the value is empty; `__name__` sets the name."""
    labels = {**dict(metric.labels), **changes}
    name = labels.pop(NAME, metric.name)
    return Metric(name, labels)


def kept(metric: Metric, labels: tuple[str, ...], without: bool) -> Metric:
    """The labels that an aggregation leaves."""
    if without:
        return Metric("", tuple(pair for pair in metric.labels if pair[0] not in labels))
    pairs: LabelPairs = tuple(pair for pair in metric.labels if pair[0] in labels)
    return Metric(metric.name if NAME in labels else "", pairs)


def number(items: Sequence[Hashable]) -> tuple[Ints, list[int]]:
    """[S] group number of each item in order of first appearance, and where each group first appears."""
    numbers: dict[Hashable, int] = {}
    firsts: list[int] = []
    of = np.empty(len(items), dtype=np.int64)
    for i, item in enumerate(items):
        number = numbers.get(item)
        if number is None:
            number = numbers[item] = len(firsts)
            firsts.append(i)
        of[i] = number
    return of, firsts
