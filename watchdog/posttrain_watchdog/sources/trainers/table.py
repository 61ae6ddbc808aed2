"""A framework's keys under canonical names: the table that turns one record into one row.

Keys that no table knows are kept under posttrain_trainer_value{key=...}, bounded in number, so that nobody loses a
metric of their own. Records of one trainer share their keys: what a set of keys means is worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from posttrain_watchdog.model import Event, Metric, Row
from posttrain_watchdog.sources.trainers.text import Numbers
from posttrain_watchdog.vocabulary.trainer import PREFIX

MOST_OWN_KEYS = 500
MOST_SHAPES = 256
_VALUE = PREFIX + "value"
_NON_FINITE = PREFIX + "non_finite_total"
_WATCHED = frozenset({PREFIX + "loss", PREFIX + "grad_norm", PREFIX + "policy_loss"})


@dataclass(slots=True)
class _Shape:
    """What records with one set of keys become: which of their values, as which metrics."""

    metrics: tuple[Metric, ...]
    pick: Callable[[Sequence[float | None]], tuple[float | None, ...]] | None
    """takes its values out of a record's, None for all of them"""
    scaled: tuple[tuple[Metric, float], ...]


class Table:
    """Maps raw keys to metrics, each looked up once. Where two keys mean the same, the first in KEYS wins."""

    def __init__(
        self, keys: Mapping[str, str], scales: Mapping[str, float] | None = None, ignored: frozenset[str] = frozenset()
    ) -> None:
        self._keys = keys
        self._scales = scales or {}
        self._ignored = ignored
        self._order = {key: place for place, key in enumerate(keys)}
        self._known: dict[str, tuple[Metric, float] | None] = {}
        self._spares: dict[str, Metric] = {}
        self._non_finite: dict[Metric, float] = {}
        self._last_keys: tuple[str, ...] = ("",)
        self._last_shape = _Shape((), None, ())
        self._shapes: dict[tuple[str, ...], _Shape] = {}

    def rows(self, numbers: Numbers, step: int | None, time: float | None = None) -> list[Row | Event]:
        """The row of one record, and an event where loss or gradient are not finite. Absent values are left out."""
        return self.aligned(tuple(numbers), list(numbers.values()), step, time)

    def aligned(
        self, keys: tuple[str, ...], values: Sequence[float | None], step: int | None, time: float | None = None
    ) -> list[Row | Event]:
        """The same for keys (all different) and their values side by side."""
        try:
            total = sum(values)  # type: ignore[arg-type]  # a missing value raises, and takes the way below
        except TypeError:
            return self._one_by_one(dict(zip(keys, values, strict=True)), step, time)
        if total - total != 0:
            return self._one_by_one(dict(zip(keys, values, strict=True)), step, time)
        if keys is self._last_keys:
            shape = self._last_shape
        else:
            shape = self._shapes.get(keys) or self._shape(keys)
            self._last_keys, self._last_shape = keys, shape
        if shape.pick is not None:
            values = shape.pick(values)
        found: dict[Metric, float] = dict(zip(shape.metrics, values, strict=True))  # type: ignore[arg-type]
        for metric, scale in shape.scaled:
            found[metric] *= scale
        return [Row(found, step, time)] if found else []

    def _shape(self, keys: tuple[str, ...]) -> _Shape:
        chosen: dict[Metric, int] = {}
        scaled: dict[Metric, float] = {}
        for place, key in enumerate(keys):
            known = self._known[key] if key in self._known else self._look_up(key)
            if known is None:
                continue
            metric, scale = known
            if metric in chosen:
                # two keys of one meaning: the first in KEYS has the name, the other one keeps its own
                loser = max(place, chosen[metric], key=lambda p: self._rank(keys[p]))
                spare = self._own_metric(keys[loser])
                if spare is not None:
                    chosen[spare] = loser
                if loser == place:
                    continue
            chosen[metric] = place
            scaled[metric] = scale
        places = tuple(chosen.values())
        shape = _Shape(
            tuple(chosen),
            None if places == tuple(range(len(keys))) else _picker(places),
            tuple((metric, scale) for metric, scale in scaled.items() if scale != 1.0),
        )
        if len(self._shapes) < MOST_SHAPES:
            self._shapes[keys] = shape
        return shape

    def _rank(self, key: str) -> int:
        return self._order.get(key, 0)

    def _look_up(self, key: str) -> tuple[Metric, float] | None:
        found: tuple[Metric, float] | None = None
        short = self._keys.get(key) or self._by_pattern(key)
        if short is not None:
            found = (Metric(PREFIX + short), self._scales.get(key, 1.0))
        elif key not in self._ignored and (metric := self._own_metric(key)) is not None:
            found = (metric, 1.0)
        if len(self._known) < 10 * MOST_OWN_KEYS:
            self._known[key] = found
        return found

    def _own_metric(self, key: str) -> Metric | None:
        """The metric under the framework's own key, as long as there is room."""
        found = self._spares.get(key)
        if found is None and len(self._spares) < MOST_OWN_KEYS and 0 < len(key) <= 200:
            found = self._spares[key] = Metric(_VALUE, {"key": key})
        return found

    def _by_pattern(self, key: str) -> str | None:
        for pattern, short in self._keys.items():
            if "*" in pattern:
                head, _, tail = pattern.partition("*")
                if key.startswith(head) and key.endswith(tail) and "/" not in key[len(head) : len(key) - len(tail)]:
                    return short
        return None

    def _one_by_one(self, numbers: Numbers, step: int | None, time: float | None) -> list[Row | Event]:
        """The way of records with missing or non-finite values."""
        values: dict[Metric, float] = {}
        owners: dict[Metric, tuple[str, float]] = {}
        bad, counted = "", False
        for key, value in numbers.items():
            if value is None:
                continue
            known = self._known[key] if key in self._known else self._look_up(key)
            if known is None:
                continue
            metric, scale = known
            if metric in values:
                owner = owners[metric]
                loser, lost = (key, value) if self._rank(owner[0]) <= self._rank(key) else owner
                spare = self._own_metric(loser)
                if spare is not None:
                    values[spare] = lost
                if loser == key:
                    continue
            values[metric] = value if scale == 1.0 else value * scale
            owners[metric] = (key, value)
            if value - value != 0 and metric.name != _VALUE:
                counter = Metric(_NON_FINITE, {"metric": metric.name})
                self._non_finite[counter] = self._non_finite.get(counter, 0.0) + 1.0
                counted = True
                if metric.name in _WATCHED:
                    bad = f"{key} is {value}"
        found: list[Row | Event] = []
        if counted:
            values.update(self._non_finite)
        if values:
            found.append(Row(values, step, time))
        if bad:
            found.append(Event("nan_loss", bad, {}, step, time))
        return found


def _picker(places: tuple[int, ...]) -> Callable[[Sequence[float | None]], tuple[float | None, ...]]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple(values[place] for place in places)
