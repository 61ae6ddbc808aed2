"""Instant and range queries over a store: what the other rooms call.

Promises: results as Prometheus 2.42 gives them (3.x windows by a setting); an expression that cannot be evaluated
raises PromQLError and leaves nothing behind. Never reads the clock: the time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql import nodes
from posttrain_watchdog.promql.columns import Columns, Floats
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.evaluate import Evaluator
from posttrain_watchdog.promql.frame import NAMELESS
from posttrain_watchdog.promql.grid import Grid, instant
from posttrain_watchdog.promql.ranges import WORK
from posttrain_watchdog.promql.selecting import Samples, Selecting
from posttrain_watchdog.promql.syntax import parse
from posttrain_watchdog.promql.values import Matrix, Scalar, String, Value, Vector
from posttrain_watchdog.series.store import ABSENT_BITS, STALE_BITS, Store

MAX_STEPS = 11_000
"""steps of one range query, as in Prometheus"""
CELLS = 2_000_000
"""steps times series that are evaluated at once"""


POINTS = 2_000_000
"""samples in one result"""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What Prometheus has as flags. Seconds."""

    lookback: float = 300.0
    windows: str = "2.x"
    """"2.x": ranges and lookback include their left end; "3.x": they do not"""
    subquery_step: float = 60.0
    """step of a subquery without one: Prometheus' global evaluation interval"""


class Engine:
    """Evaluates expressions over one store."""

    def __init__(self, store: Store, settings: EngineSettings | None = None) -> None:
        self.store = store
        self.settings = settings or EngineSettings()
        if self.settings.windows not in ("2.x", "3.x"):
            raise ValueError(f"windows must be '2.x' or '3.x', not {self.settings.windows!r}")
        selecting = Selecting(store, round(self.settings.lookback * 1000), self.settings.windows == "2.x")
        self._evaluator = Evaluator(selecting, round(self.settings.subquery_step * 1000))
        self._version = store.version
        self._grid: Grid | None = None

    def prepare(self, expression: str) -> Query:
        """Parse once, evaluate often. Raises PromQLError."""
        return Query(self, expression, parse(expression))

    def instant(self, expression: str, time: float) -> Value:
        """The expression at one time (seconds). Raises PromQLError."""
        return self.prepare(expression).instant(time)

    def range(self, expression: str, start: float, end: float, step: float) -> Matrix:
        """The expression at start, start+step, ... up to end (seconds). Raises PromQLError."""
        return self.prepare(expression).range(start, end, step)

    def evaluate(self, tree: nodes.Node, grid: Grid) -> Columns | Floats | str:
        """For Query: columns of the whole grid."""
        if self._version != self.store.version or self._grid != grid:
            self._evaluator.forget()
            self._version, self._grid = self.store.version, grid
        try:
            return self._evaluator.evaluate(tree, grid)
        except RecursionError:
            raise PromQLError("expression is nested too deeply") from None

    def begin(self) -> None:
        """For Query: a new query has a new budget."""
        self._evaluator.budget.cells = WORK

    def read(self, node: nodes.RangeSelector | nodes.Subquery, grid: Grid) -> Samples:
        """For Query: the samples of a bare range at one time."""
        samples = self._evaluator.window(node, grid)
        if samples.values.size > POINTS:
            raise PromQLError(f"result has more than {POINTS:,} samples: ask for fewer series or a shorter range")
        return samples


class Query:
    """A parsed expression bound to an engine."""

    __slots__ = ("engine", "expression", "tree")

    def __init__(self, engine: Engine, expression: str, tree: nodes.Node) -> None:
        self.engine = engine
        self.expression = expression
        self.tree = tree

    def instant(self, time: float) -> Value:
        """Scalar, String or Vector; Matrix for a bare range selector. Raises PromQLError."""
        self.engine.begin()
        grid = instant(round(time * 1000))
        when = grid.start / 1000.0
        if isinstance(self.tree, (nodes.RangeSelector, nodes.Subquery)):
            return _samples_matrix(self.engine.read(self.tree, grid))
        result = self.engine.evaluate(self.tree, grid)
        if isinstance(result, str):
            return String(result, when)
        if isinstance(result, Columns):
            return Vector(when, _samples(result))
        return Scalar(float(result[0]), when)

    def range(self, start: float, end: float, step: float) -> Matrix:
        """Raises PromQLError for an expression that is no vector or scalar, and for too many steps."""
        if nodes.kind(self.tree) not in ("vector", "scalar"):
            raise PromQLError(
                f"invalid expression type {nodes.kind(self.tree)} for range query, must be scalar or instant vector"
            )
        first, last, width = round(start * 1000), round(end * 1000), round(step * 1000)
        if width <= 0:
            raise PromQLError("zero or negative query resolution step widths are not accepted")
        if last < first:
            raise PromQLError("end timestamp must not be before start time")
        if (last - first) // width + 1 > MAX_STEPS:
            raise PromQLError(f"exceeded maximum resolution of {MAX_STEPS:,} points per timeseries")
        self.engine.begin()
        at_once = max(1, CELLS // max(1, self.engine.store.series))
        found: dict[Metric, list[tuple[float, float]]] = {}
        room = POINTS
        for begin in range(first, last + 1, at_once * width):
            grid = Grid(begin, min(last, begin + (at_once - 1) * width), width, first, last)
            result = self.engine.evaluate(self.tree, grid)
            if isinstance(result, str):
                raise PromQLError("a string has no range")
            if not isinstance(result, Columns):
                result = Columns(NAMELESS, result[:, None])
            room -= result.values.size if result.present is None else int(np.count_nonzero(result.present))
            if room < 0:
                raise PromQLError(f"result has more than {POINTS:,} samples: ask for fewer steps or series")
            _collect(result, grid, found)
        return Matrix(sorted(found.items(), key=lambda item: (item[0].name, item[0].labels)))


def _samples(columns: Columns) -> list[tuple[Metric, float]]:
    metrics = columns.frame.metrics
    if columns.present is None:
        return list(zip(metrics, columns.values[0].tolist(), strict=True))
    there = np.flatnonzero(columns.present[0])
    return [(metrics[i], v) for i, v in zip(there.tolist(), columns.values[0, there].tolist(), strict=True)]


def _collect(columns: Columns, grid: Grid, found: dict[Metric, list[tuple[float, float]]]) -> None:
    times = (grid.steps / 1000.0).tolist()
    mask = columns.present
    for i, metric in enumerate(columns.frame.metrics):
        values = columns.values[:, i].tolist()
        if mask is None:
            points = list(zip(times, values, strict=True))
        else:
            points = [(times[t], values[t]) for t in np.flatnonzero(mask[:, i]).tolist()]
        if points:
            known = found.setdefault(metric, [])
            known.extend(points)
            if len(known) > len(points) and known[-len(points) - 1][0] >= points[0][0]:
                known.sort()


def _samples_matrix(samples: Samples) -> Matrix:
    bits = samples.values.view(np.int64)
    there = (bits != ABSENT_BITS) & (bits != STALE_BITS)
    times = samples.ticks / 1000.0
    result = Matrix()
    for i, metric in enumerate(samples.frame.metrics):
        rows = np.flatnonzero(there[:, i])
        if len(rows):
            points = list(zip(times[rows].tolist(), samples.values[rows, i].tolist(), strict=True))
            result.series.append((metric, points))
    return result
