"""Numbers that a tracker holds under a trainer's own keys: which trainer's they are, told by the keys.

Trackers put `train/` in front of some trainers' keys and leave others as they are. The trainer is chosen once, by the
first record of which most keys are known; what no table knows is kept under its own key.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.detection import scales, tables
from posttrain_watchdog.sources.trainers.steps import StepCounter, whole
from posttrain_watchdog.sources.trainers.table import Table
from posttrain_watchdog.sources.trainers.text import Numbers

_STEPS = ("train/global_step", "trainer/global_step", "training/global_step", "train/step", "global_step", "step")
_IGNORED = frozenset({*_STEPS, "_step", "_timestamp", "_runtime", "time"})
_MOST_UNSURE = 5
"""Records to wait for one whose keys tell the trainer."""


@cache
def _known() -> Mapping[str, Mapping[str, str]]:
    """Trainer -> its keys as trackers write them."""
    found: dict[str, Mapping[str, str]] = {}
    for name, keys in tables().items():
        found[name] = {**keys, **{f"train/{key}": short for key, short in keys.items()}}
    return found


def trainer_of(keys: frozenset[str]) -> str:
    """The trainer of whose keys these hold most; empty where they hold none."""
    # HF trainers share most keys: of equals, the one that the others are built on
    best = max(_known(), key=lambda name: (len(keys & _known()[name].keys()), name == "trl"))
    return best if keys & _known()[best].keys() else ""


class Tracked:
    """Records of one tracker's file, in order."""

    def __init__(self) -> None:
        self.trainer = ""
        self._table: Table | None = None
        self._seen: set[str] = set()
        self._records = 0
        self._steps = StepCounter()

    def rows(self, numbers: Numbers, step: int | None, time: float | None) -> list[Row | Event]:
        """What one record gives. `step` is the tracker's own axis, used where the record has none of the trainer."""
        own = next((s for key in _STEPS if (s := whole(numbers.get(key))) is not None), None)
        step = step if own is None else own
        table = self._table if self._table is not None else self._choose(numbers)
        if step is None:
            return table.rows(numbers, None, time)
        last = self._steps.step
        if last is not None and last - 1 <= step <= last:
            return table.rows(numbers, step, time)
        return self._steps.told(step, time, table.rows(numbers, step, time))

    def last(self) -> list[Row | Event]:
        return self._steps.last()

    def _choose(self, numbers: Numbers) -> Table:
        self._seen.update(numbers)
        self._records += 1
        self.trainer = trainer_of(frozenset(self._seen))
        table = table_of(self.trainer)
        if self._records >= _MOST_UNSURE or len(self._seen) > 20:
            self._table = table
        return table


def table_of(trainer: str) -> Table:
    """The table of a trainer's keys as trackers write them, its signs and scales included."""
    own = scales().get(trainer, {})
    return Table(_known().get(trainer, {}), {**own, **{f"train/{k}": v for k, v in own.items()}}, _IGNORED)
