"""A framework's keys under canonical names: the table that turns one record into one row.

Keys that no table knows are kept under posttrain_trainer_value{key=...}, bounded in number, so that nobody loses a
metric of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from posttrain_watchdog.model import Event, Metric, Row
from posttrain_watchdog.sources.trainers.text import Numbers
from posttrain_watchdog.vocabulary.trainer import PREFIX

MOST_OWN_KEYS = 500
_VALUE = PREFIX + "value"
_WATCHED = frozenset({PREFIX + "loss", PREFIX + "grad_norm", PREFIX + "policy_loss"})


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
        self._own = 0

    def _look_up(self, key: str) -> tuple[Metric, float] | None:
        found: tuple[Metric, float] | None = None
        short = self._keys.get(key) or self._by_pattern(key)
        if short is not None:
            found = (Metric(PREFIX + short), self._scales.get(key, 1.0))
        elif key not in self._ignored and self._own < MOST_OWN_KEYS:
            self._own += 1
            found = (Metric(_VALUE, {"key": key}), 1.0)
        if len(self._known) < 10 * MOST_OWN_KEYS:
            self._known[key] = found
        return found

    def _by_pattern(self, key: str) -> str | None:
        for pattern, short in self._keys.items():
            if "*" in pattern:
                head, _, tail = pattern.partition("*")
                if key.startswith(head) and key.endswith(tail) and "/" not in key[len(head) : len(key) - len(tail)]:
                    return short
        return None

    def rows(self, numbers: Numbers, step: int | None, time: float | None = None) -> Iterator[Row | Event]:
        """The row of one record, and an event where loss or gradient are not finite. Absent values are left out."""
        values: dict[Metric, float] = {}
        ranks: dict[Metric, int] = {}
        bad = ""
        for key, value in numbers.items():
            if value is None:
                continue
            known = self._known[key] if key in self._known else self._look_up(key)
            if known is None:
                continue
            metric, scale = known
            rank = self._order.get(key, 0)
            if metric in values and ranks.get(metric, 0) <= rank:
                continue
            values[metric] = value if scale == 1.0 else value * scale
            ranks[metric] = rank
            if value - value != 0 and metric.name in _WATCHED:
                bad = f"{key} is {value}"
        if values:
            yield Row(values, step, time)
        if bad:
            yield Event("nan_loss", bad, {}, step, time)
