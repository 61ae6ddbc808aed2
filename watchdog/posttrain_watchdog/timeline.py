"""When did it happen: puts what finished files say onto one clock.

Timestamps in the log if there are any, else the steps' own reported durations, else 30 s a step (DESIGN section 5).
Pure: never reads a clock or a file.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from statistics import median

from posttrain_watchdog.model import Diagnosis, Event, Metric, Row, TokenBatch
from posttrain_watchdog.sources.readers import Item

STEP_SECONDS = Metric("posttrain_trainer_step_seconds")
DEFAULT_STEP = 30.0


class StepClock:
    """Seconds since the epoch at which a step ended, from whatever the rows tell."""

    def __init__(self, rows: Iterable[Row]) -> None:
        stamped: dict[int, float] = {}
        durations: dict[int, float] = {}
        seen: set[int] = set()
        free: list[float] = []
        for row in rows:
            if row.step is None:
                if row.time is not None:
                    free.append(row.time)
                continue
            seen.add(row.step)
            if row.time is not None:
                stamped.setdefault(row.step, row.time)
            spent = row.values.get(STEP_SECONDS)
            if spent is not None and 0 < spent < 1e7:
                durations[row.step] = spent
        self.stamped = bool(stamped)
        if stamped:
            self._steps = sorted(stamped)
            # a clock that steps back (resume, another host) must not turn the order of steps around
            self._times = [stamped[s] for s in self._steps]
            for i in range(1, len(self._times)):
                self._times[i] = max(self._times[i], self._times[i - 1])
        else:
            usual = median(durations.values()) if durations else DEFAULT_STEP
            self._steps = sorted(seen) or [0]
            at, self._times = min(free, default=0.0), []
            for previous, step in zip([self._steps[0] - 1, *self._steps], self._steps, strict=False):
                at += durations.get(step, usual) + usual * (step - previous - 1)
                self._times.append(at)
        gaps = [
            (t2 - t1) / (s2 - s1)
            for s1, s2, t1, t2 in zip(self._steps, self._steps[1:], self._times, self._times[1:], strict=False)
        ]
        self._usual = median(gaps) if gaps else median(durations.values()) if durations else DEFAULT_STEP

    @property
    def start(self) -> float:
        """The time before the first step."""
        return self._times[0] - self._usual

    @property
    def end(self) -> float:
        """When the last step that is known ended."""
        return self._times[-1]

    def at(self, step: int) -> float:
        """When that step ended; steps that were not logged are placed between their neighbours."""
        place = bisect.bisect_left(self._steps, step)
        if place < len(self._steps) and self._steps[place] == step:
            return self._times[place]
        if place == 0:
            return self._times[0] - self._usual * (self._steps[0] - step)
        if place == len(self._steps):
            return self._times[-1] + self._usual * (step - self._steps[-1])
        before, after = self._steps[place - 1], self._steps[place]
        share = (step - before) / (after - before)
        return self._times[place - 1] + share * (self._times[place] - self._times[place - 1])


def step_of(item: Item) -> int | None:
    """The step that an item belongs to, if it says."""
    if isinstance(item, TokenBatch):
        steps = item.step[item.step >= 0]
        return int(steps[0]) if steps.size else None
    if isinstance(item, Diagnosis):
        return item.first_step
    return item.step


def timed(items: Iterable[Item], clock: StepClock) -> Iterator[tuple[float, Item]]:
    """Items of one file with their times, never going back: an item without time or step follows its forerunner."""
    last = clock.start
    for item in items:
        own = item.time if isinstance(item, (Row, Event)) else None
        step = step_of(item)
        if own is None and step is not None:
            own = clock.at(step)
        last = max(last, own) if own is not None else last
        yield last, item
