"""Which step a record belongs to, for trainers that print no step, print it several times, or go back."""

from __future__ import annotations

import math
from collections.abc import Iterator

from posttrain_watchdog.model import Event


class StepCounter:
    """Counts records where they carry no step; notices a return to a checkpoint where they do."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._every = logging_steps
        self.step: int | None = None

    def counted(self) -> int:
        """The step of the next record that carries none."""
        self.step = (self.step or 0) + self._every
        return self.step

    def told(self, step: int, time: float | None = None) -> Iterator[Event]:
        """Takes a step that a record carries; yields `resumed` where the run went back."""
        if self.step is not None and step < self.step:
            yield Event("resumed", f"steps go back from {self.step} to {step}", {"step": str(step)}, step, time)
        self.step = step


def whole(value: float | None) -> int | None:
    """A step as a number tells it."""
    return int(value) if value is not None and math.isfinite(value) and abs(value) < 1e15 else None
