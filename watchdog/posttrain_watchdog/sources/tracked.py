"""Numbers that a tracker holds under a trainer's own keys: which trainer's they are, told by the keys.

Trackers put `train/` in front of some trainers' keys and leave others as they are. The trainer is chosen once, by the
first record of which most keys are known; what no table knows is kept under its own key. Some trackers write a record
a key: those of one step make one row.
"""

from __future__ import annotations

from collections.abc import Sequence

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainer_tables import STEP_KEYS, table_of, trainer_of
from posttrain_watchdog.sources.trainers.steps import StepCounter, whole
from posttrain_watchdog.sources.trainers.table import Table
from posttrain_watchdog.sources.trainers.text import Numbers

_MOST_UNSURE = 5
"""Records to wait for one whose keys tell the trainer."""


class Tracked:
    """Records of one tracker's file, in order."""

    def __init__(self) -> None:
        self.trainer = ""
        self._table: Table | None = None
        self._seen: set[str] = set()
        self._records = 0
        self._steps = StepCounter()
        self._gathered: Numbers = {}
        self._gathered_step: int | None = None
        self._gathered_time: float | None = None

    def rows(self, numbers: Numbers, step: int | None, time: float | None) -> list[Row | Event]:
        """What one record gives. `step` is the tracker's own axis, used where the record has none of the trainer."""
        own = next((s for key in STEP_KEYS if (s := whole(numbers.get(key))) is not None), None)
        step = step if own is None else own
        table = self._table if self._table is not None else self._choose(numbers)
        if step is None:
            return table.rows(numbers, None, time)
        last = self._steps.step
        if last is not None and last - 1 <= step <= last:
            return table.rows(numbers, step, time)
        return self._steps.told(step, time, table.rows(numbers, step, time))

    def gather(self, scalars: Sequence[tuple[str, float]], step: int, time: float | None) -> list[Row | Event]:
        """Takes some (key, number) of a step; gives the row of the step before where another one begins."""
        begins = step != self._gathered_step or any(key in self._gathered for key, _ in scalars)
        found = self.flush() if begins else []
        self._gathered_step, self._gathered_time = step, time
        self._gathered.update(scalars)
        return found

    def flush(self) -> list[Row | Event]:
        """The row of what was gathered."""
        numbers, self._gathered = self._gathered, {}
        return self.rows(numbers, self._gathered_step, self._gathered_time) if numbers else []

    def last(self) -> list[Row | Event]:
        return [*self.flush(), *self._steps.last()]

    def _choose(self, numbers: Numbers) -> Table:
        self._seen.update(numbers)
        self._records += 1
        self.trainer = trainer_of(self._seen)
        table = table_of(self.trainer)
        if self._records >= _MOST_UNSURE or len(self._seen) > 20:
            self._table = table
        return table
