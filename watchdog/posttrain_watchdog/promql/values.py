"""What an expression evaluates to: Vector, Matrix, Scalar, String.

Times are seconds since the epoch. Metrics carry an empty name where PromQL has dropped it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from posttrain_watchdog.model import Metric


@dataclass(slots=True)
class Scalar:
    """One number."""

    value: float
    time: float


@dataclass(slots=True)
class String:
    """One string literal."""

    value: str
    time: float


@dataclass(slots=True)
class Vector:
    """An instant vector: one sample a series, all at `time`. The order is that of the expression (`sort`, `topk`)."""

    time: float
    samples: list[tuple[Metric, float]] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[Metric, float]]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(slots=True)
class Matrix:
    """A range vector, or the result of a range query: (times, values) a series, in ascending time."""

    series: list[tuple[Metric, list[tuple[float, float]]]] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[Metric, list[tuple[float, float]]]]:
        return iter(self.series)

    def __len__(self) -> int:
        return len(self.series)


Value = Scalar | String | Vector | Matrix
