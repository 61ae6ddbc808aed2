"""All that a run's engines say, together: starts with their arguments, and answers beside their requests.

Promises: bounded memory; cheap per answer, statistics only when asked; a cause needs no trainer. Never reads a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from posttrain_watchdog.model import Diagnosis, Event, Row
from posttrain_watchdog.sources.engines.response_judge import diagnose
from posttrain_watchdog.sources.engines.response_tally import Tally
from posttrain_watchdog.sources.engines.responses import Answer, read

_MOST_STARTS = 64


class EngineMonitor:
    """`temperature`: at which the trainer samples, where its configuration or command line says so."""

    def __init__(self, temperature: float | None = None) -> None:
        self._temperature = temperature
        self._tally = Tally(temperature)
        self._starts: list[Event] = []

    def observe(self, event: Event) -> None:
        """Takes note of an engine's start; other events pass."""
        if event.kind == "engine_started":
            self._starts = [*self._starts[-_MOST_STARTS:], event]

    def add(self, answers: Iterable[Answer]) -> None:
        """Counts answers already parsed."""
        for answer in answers:
            self._tally.add(answer)

    def read(self, lines: Sequence[bytes]) -> None:
        """Counts the answers of complete lines of a file of requests and responses."""
        self.add(read(lines))

    @property
    def answers(self) -> int:
        """Answers seen, errors apart."""
        return self._tally.answers

    def row(self, time: float | None = None) -> Row:
        """The counts so far; a row without values where no answer was seen."""
        return self._tally.row(time) if self._tally.codes else Row({}, time=time)

    def diagnoses(self) -> list[Diagnosis]:
        """The causes that are suspected now, most confident first."""
        return diagnose(self._tally, self._starts, self._temperature)
