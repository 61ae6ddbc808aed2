"""Which of a step's writings counts, where a resumed run did the step again.

Promises: pure bookkeeping, bounded by the steps that are kept. A run that goes back to a checkpoint leaves behind
steps that the new attempt has not reached yet: they are of a policy that is gone, and count no more either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


class Writing(Protocol):
    """What says which writing of its steps it is (a batch of tokens, or of samples)."""

    lineage: str
    attempt: int
    reading: int


@dataclass(slots=True)
class _Written:
    lineage: str
    attempt: int
    reading: int


@dataclass(slots=True)
class Redone:
    """Asked of every step's batch before it is taken."""

    _began: dict[str, dict[int, int]] = field(default_factory=dict)
    """lineage -> attempt -> its first step"""
    _written: dict[int, _Written] = field(default_factory=dict)
    """step -> by whom last"""

    def admit(self, step: int, batch: Writing) -> set[int] | None:
        """The steps that this batch takes the place of, before it is added; None: it is itself out of date."""
        if step < 0:
            return set()
        attempts = self._began.setdefault(batch.lineage, {})
        if any(number > batch.attempt and first <= step for number, first in attempts.items()):
            return None
        old: set[int] = set()
        if step < attempts.get(batch.attempt, step + 1):
            attempts[batch.attempt] = step
            old = {
                s
                for s, by in self._written.items()
                if s >= step and by.lineage == batch.lineage and by.attempt < batch.attempt
            }
        by = self._written.get(step)
        # a lower reading is of another file of the same step, which was not written anew
        same = by is not None and (by.lineage, by.attempt) == (batch.lineage, batch.attempt)
        if by is not None and same and by.reading < batch.reading:
            old.add(step)
        for each in old:
            del self._written[each]
        now = self._written.setdefault(step, _Written(batch.lineage, batch.attempt, batch.reading))
        now.reading = max(now.reading, batch.reading)
        return old

    def forget_before(self, step: int) -> None:
        """Steps so old are not kept any more."""
        for each in [s for s in self._written if s < step]:
            del self._written[each]
