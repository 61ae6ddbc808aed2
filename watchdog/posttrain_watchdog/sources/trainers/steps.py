"""Which step a record belongs to, for trainers that print no step, print it several times, or go back.

A step that does not follow on is held until the next record confirms it: a completion that the trainer prints can
hold a line that looks like a record, but the run does not go on from there.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from posttrain_watchdog.model import Event, Row

Items = list[Row | Event]

_SLACK = 8
"""A step may lie so many usual distances ahead: records get lost, validation is logged between."""
_OVERLAP = 0.5
"""Part of the usual keys that a record without a step must have."""
_MOST_USUAL = 1000
_MOST_HELD = 64


class StepCounter:
    """Counts records where they carry no step; notices a return to a checkpoint where they do."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._every = logging_steps
        self._stride = 0
        self._held: tuple[int, float | None, Items] | None = None
        self._usual: frozenset[str] = frozenset()
        self.step: int | None = None

    def counted(self) -> int:
        """The step of the next record that carries none."""
        self.step = (self.step or 0) + self._every
        return self.step

    def told(self, step: int, time: float | None, items: Items) -> Items:
        """What a record that carries its step gives: its items where the step follows on.

        Else they are held, and given with the next record that goes on from there, after a `resumed` where the run
        went back.
        """
        last, held = self.step, self._held
        if held is None:
            if last is None or self._follows(last, step):
                self._go_to(step)
                return items
            self._held = (step, time, items)
            return []
        if step == held[0]:
            # the same step again confirms nothing: a text that was printed twice does that too
            if len(held[2]) < _MOST_HELD:
                held[2].extend(items)
            return []
        if last is None or step < held[0] or (step > last and self._follows(last, step)):
            self._held = None
            return self.told(step, time, items)
        self._stride = 0
        found = [*self._confirmed(held), *items]
        self._go_to(step)
        return found

    @property
    def counts(self) -> bool:
        """Whether this log's records carry no step and are counted."""
        return bool(self._usual)

    @property
    def holds(self) -> bool:
        """Whether a record waits for the next one to confirm it."""
        return self._held is not None

    def last(self) -> Items:
        """The log's end: a return to a checkpoint that nothing could confirm any more."""
        held = self._held
        if held is None or self.step is None or held[0] > self.step:
            return []
        return self._confirmed(held)

    def usual(self, keys: Collection[str]) -> bool:
        """Whether a record without a step has the keys that this log's records have; the first one sets them."""
        if not self._usual:
            self._usual = frozenset(keys)
            return True
        common = sum(key in self._usual for key in keys)
        if common < _OVERLAP * len(self._usual):
            return False
        if common < len(keys) and len(self._usual) < _MOST_USUAL and common == len(self._usual):
            self._usual = self._usual.union(keys)
        return True

    def _follows(self, last: int, step: int) -> bool:
        return last <= step and (self._stride == 0 or step <= last + _SLACK * self._stride)

    def _go_to(self, step: int) -> None:
        if self.step is not None and step - self.step > self._stride:
            self._stride = step - self.step
        self.step = step

    def _confirmed(self, held: tuple[int, float | None, Items]) -> Items:
        step, time, items = held
        last, self._held, self.step = self.step, None, step
        if last is None or step >= last:
            return items
        return [Event("resumed", f"steps go back from {last} to {step}", {"step": str(step)}, step, time), *items]


class Onward:
    """Tells a restart where several kinds of records tell steps at a pace of their own: each kind only goes on."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def goes_back(self, kind: str, step: int) -> bool:
        """Whether a record of this kind tells a step before the last one; all kinds begin anew from there."""
        back = step < self._last.get(kind, step)
        if back:
            self._last.clear()
        if len(self._last) < _MOST_USUAL or kind in self._last:
            self._last[kind] = step
        return back


def whole(value: float | None) -> int | None:
    """A step as a number tells it."""
    return int(value) if value is not None and math.isfinite(value) and abs(value) < 1e15 else None
