"""Takes what the sources say of a run and names the causes that are at work.

Promises: `observe` is cheap; `tick` gives the present state, one diagnosis a cause, each with the step from which the
fault is in the data. Judges are the files of `causes/`, found by name. A judge that fails is left out and counted;
the others go on. Never reads a clock, a file or a socket.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping

from posttrain_watchdog.incidents import causes
from posttrain_watchdog.incidents.finding import Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.published import rows_of
from posttrain_watchdog.model import Diagnosis, Event, Row

Judge = Callable[[History], "Finding | None"]

_GENERAL = ("mismatch_growing", "length_artefact", "transient_spike", "unknown")
"""Causes that only describe the shape of a disagreement: a named reason for it takes their place."""
_BESIDE_NAMED = 0.49
"""What a general cause keeps of its confidence beside a named one: shown, not said aloud."""
_BESIDE_TOKENS = 0.6
"""What it keeps where tokens are compared, whose statistics can name the kind of a disagreement."""
_ABOUT_REPORTING = frozenset({"precision_noise", "policy_lag"})
"""Named causes that explain a steady level, and not a growth."""


def judges() -> Mapping[str, Judge]:
    """Cause -> judge, from the files of `causes/`."""
    found: dict[str, Judge] = {}
    for module in pkgutil.iter_modules(causes.__path__):
        found[module.name] = importlib.import_module(f"{causes.__name__}.{module.name}").judge
    return found


class Monitor:
    """Diagnoses of one run."""

    def __init__(self) -> None:
        self.history = History()
        self.failed: dict[str, str] = {}
        """cause -> why its judge could not be asked"""
        self._judges = judges()
        self.onsets: dict[str, int] = {}
        self._published: tuple[int | None, int] = (None, 0)

    def observe(self, item: Row | Event) -> None:
        if isinstance(item, Row):
            self.history.row(item)
        else:
            self.history.event(item)

    def tick(self, now: float, named: Collection[str] = ()) -> list[Diagnosis]:
        """The causes at work at `now` (seconds since the epoch), most confident first.

        `named`: causes that others (the token statistics) name at this moment with confidence 0.5 or more; general
        causes step back behind them.
        """
        self.history.tick(now)
        found: list[Diagnosis] = []
        for cause, judge in self._judges.items():
            try:
                finding = judge(self.history)
            except (ArithmeticError, LookupError, ValueError, TypeError) as error:
                self.failed[cause] = f"{type(error).__name__}: {error}"
                continue
            if finding is None:
                self.onsets.pop(cause, None)
                continue
            found.append(self._diagnosis(cause, finding, set(named)))
        return sorted(found, key=lambda d: -d.confidence)

    def rows(self) -> list[Row]:
        """Statistics of the run's course, for rules; drained, at most one row a step."""
        now = (self.history.step, self.history.counts["nccl_timeout"])
        if now == self._published:
            return []
        self._published = now
        return rows_of(self.history)

    def _diagnosis(self, cause: str, finding: Finding, named: set[str]) -> Diagnosis:
        step = finding.first_step if finding.first_step is not None else self.history.step
        if step is not None:
            step = int(step)
            # the judges' windows move on; the fault is as old as when it was first found
            step = self.onsets.setdefault(cause, step)
            step = self.onsets[cause] = min(step, finding.first_step if finding.first_step is not None else step)
        confidence = finding.confidence
        weightier = named - _ABOUT_REPORTING if cause == "mismatch_growing" else named
        if cause in _GENERAL and weightier - {"healthy", "unknown"}:
            confidence = min(confidence, _BESIDE_NAMED)
        elif cause in _GENERAL and self.history.track("posttrain_tokens_compared").last > 0:
            confidence = min(confidence, _BESIDE_TOKENS)
        return Diagnosis(
            cause=cause,
            confidence=round(float(confidence), 3),
            summary=finding.summary,
            evidence={k: v if isinstance(v, str) else float(v) for k, v in finding.evidence.items()},
            first_checks=finding.first_checks,
            first_step=step,
            last_step=self.history.step,
            labels=tuple(sorted((k, v) for k, v in finding.labels.items() if v)),
        )
