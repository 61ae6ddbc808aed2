"""What the web room asks of the program; it knows nothing of rules, sources or the daemon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from posttrain_watchdog.model import Diagnosis, Metric


@dataclass(frozen=True, slots=True)
class SourceView:
    """One file, endpoint or device that is followed."""

    path: str
    kind: str
    up: bool
    detail: str = ""
    records: int = 0


@dataclass(frozen=True, slots=True)
class RunView:
    """One run as the page shows it."""

    name: str
    step: int | None
    finished: bool
    diagnoses: Sequence[Diagnosis]
    sources: Sequence[SourceView]
    figures: Mapping[str, float] = field(default_factory=dict)
    """metric name -> latest value, of those that the page draws"""


class QueryError(ValueError):
    """An expression that cannot be evaluated; the text says why and where."""


class View(Protocol):
    """The program as the web sees it. Every method returns plain data made for the answer."""

    def now(self) -> float: ...

    def started(self) -> float:
        """When the program began, seconds since the epoch."""

    def version(self) -> str: ...

    def ready(self) -> bool: ...

    def snapshots(self) -> Iterable[tuple[Sequence[Metric], Sequence[float]]]: ...

    def alerts(self) -> list[dict[str, Any]]: ...

    def rules(self) -> dict[str, Any]: ...

    def instant(self, expr: str, time: float) -> dict[str, Any]:
        """{"resultType", "result"} as Prometheus has it. Raises QueryError."""

    def range(self, expr: str, start: float, end: float, step: float) -> dict[str, Any]:
        """Raises QueryError."""

    def label_names(self) -> list[str]: ...

    def label_values(self, name: str) -> list[str]: ...

    def runs(self) -> Sequence[RunView]: ...

    def reload(self) -> list[str]:
        """Loads the rule files again; returns what is wrong with them, empty if they are in force."""
