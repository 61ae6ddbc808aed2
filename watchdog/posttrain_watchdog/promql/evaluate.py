"""Walks the tree over a grid of steps.

Promises: every node is evaluated for all steps at once; what several rules of one tick share (selectors and
functions of ranges) is computed once. Never reads the clock; never changes the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from posttrain_watchdog.promql import counters, nodes, over_time
from posttrain_watchdog.promql.aggregation import aggregate
from posttrain_watchdog.promql.columns import Bools, Columns, Floats, nothing, require_distinct
from posttrain_watchdog.promql.elementwise import ARITHMETIC, CALENDAR, COMPARISON, MATHEMATICS, clamp
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.frame import EMPTY, NAMELESS, Frame
from posttrain_watchdog.promql.grid import Grid
from posttrain_watchdog.promql.histogram import histogram_quantile
from posttrain_watchdog.promql.matching import operate, set_operation, with_scalar
from posttrain_watchdog.promql.ranges import Budget, over_steps
from posttrain_watchdog.promql.relabelling import absent_frame, label_join, label_replace
from posttrain_watchdog.promql.selecting import CELLS, Samples, Selecting
from posttrain_watchdog.promql.windows import Place
from posttrain_watchdog.series.store import ABSENT_BITS

Ints = NDArray[np.int64]
Result = Columns | Floats | str
"""vector, scalar [T], string"""

WINDOW_FUNCTIONS = {**over_time.FUNCTIONS, **counters.FUNCTIONS}
SHARED_CELLS = 2_000_000
"""16 MiB of results that rules of one tick share"""
SUBQUERY_STEPS = 200_000
NATIVE_HISTOGRAMS = frozenset({"histogram_count", "histogram_sum", "histogram_fraction"})


@dataclass(slots=True)
class Evaluator:
    """One evaluation of one or more expressions at one grid."""

    selecting: Selecting
    subquery_step: int
    shared: dict[tuple[nodes.Node, Grid], Columns] = field(default_factory=dict)
    """results that other expressions at the same grid may use; the owner empties it when the store changes"""
    budget: Budget = field(default_factory=Budget)
    """of the query in hand"""
    frames: set[Frame] = field(default_factory=set)
    """the frames of what is shared"""
    room: int = SHARED_CELLS
    """cells that `shared` may still take up"""

    def forget(self) -> None:
        """Let go of what was shared."""
        self.shared.clear()
        self.frames.clear()
        self.room = SHARED_CELLS

    def evaluate(self, node: nodes.Node, grid: Grid) -> Result:
        with np.errstate(all="ignore"):
            return self._any(node, grid)

    # --- by type of node

    def _any(self, node: nodes.Node, grid: Grid) -> Result:
        if isinstance(node, nodes.Number):
            return np.full(len(grid), node.value)
        if isinstance(node, nodes.Text):
            return node.value
        if isinstance(node, nodes.Selector):
            return self._shared(node, grid, lambda: self.selecting.instants(node, grid)[0])
        if isinstance(node, nodes.Call):
            return self._call(node, grid)
        if isinstance(node, nodes.Aggregation):
            return self._aggregation(node, grid)
        if isinstance(node, nodes.Binary):
            return self._binary(node, grid)
        if isinstance(node, nodes.Negation):
            body = self._any(node.body, grid)
            if isinstance(body, Columns):
                return body.with_values(-body.values).unnamed()
            return -self._number(node.body, body)
        raise PromQLError("a range vector is no result of a query at one time; wrap it in a function")

    def vector(self, node: nodes.Node, grid: Grid) -> Columns:
        value = self._any(node, grid)
        if not isinstance(value, Columns):
            raise PromQLError("expected an instant vector")
        return value

    def scalar(self, node: nodes.Node, grid: Grid) -> Floats:
        """[T]"""
        return self._number(node, self._any(node, grid))

    def _number(self, node: nodes.Node, value: Result) -> Floats:
        if isinstance(value, (Columns, str)):
            raise PromQLError(f"expected a scalar, got {nodes.kind(node)}")
        return value

    def text(self, node: nodes.Node) -> str:
        if not isinstance(node, nodes.Text):
            raise PromQLError("expected a string literal")
        return node.value

    def _shared(self, node: nodes.Node, grid: Grid, make: Callable[[], Columns]) -> Columns:
        key = (node, grid)
        found = self.shared.get(key)
        if found is None:
            found = make()
            self.room -= found.values.size
            if found.frame not in self.frames:
                # what is derived from labels weighs more than the numbers
                self.room -= 16 * len(found.frame)
                self.frames.add(found.frame)
            if self.room >= 0:
                self.shared[key] = found
        return found

    def _aggregation(self, node: nodes.Aggregation, grid: Grid) -> Columns:
        parameter: Floats | str | None = None
        if node.parameter is not None:
            parameter = (
                self.text(node.parameter) if node.operator == "count_values" else self.scalar(node.parameter, grid)
            )
        return aggregate(node.operator, self.vector(node.body, grid), node.labels, node.without, parameter)

    def _binary(self, node: nodes.Binary, grid: Grid) -> Result:
        left, right = self._any(node.left, grid), self._any(node.right, grid)
        if isinstance(left, str) or isinstance(right, str):
            raise PromQLError("binary expression must contain only scalar and instant vector types")
        if isinstance(left, Columns):
            if isinstance(right, Columns):
                if node.operator in nodes.SETS:
                    return set_operation(node.operator, left, right, node.matching)
                return operate(node.operator, left, right, node.matching, node.returns_bool)
            return with_scalar(node.operator, left, right[:, None], False, node.returns_bool)
        if isinstance(right, Columns):
            return with_scalar(node.operator, right, left[:, None], True, node.returns_bool)
        if node.operator in ARITHMETIC:
            return ARITHMETIC[node.operator](left, right)
        return COMPARISON[node.operator](left, right).astype(np.float64)

    # --- functions

    def _call(self, node: nodes.Call, grid: Grid) -> Result:
        name, args = node.function, node.args
        if name in WINDOW_FUNCTIONS:
            return self._shared(node, grid, lambda: self._over_time(node, grid))
        if name in MATHEMATICS:
            body = self.vector(args[0], grid)
            others = [self.scalar(arg, grid)[:, None] for arg in args[1:]]
            return body.with_values(MATHEMATICS[name](body.values, *others)).unnamed()
        if name in CALENDAR:
            if not args:
                return Columns(NAMELESS, CALENDAR[name](self._seconds(grid)[:, None]))
            body = self.vector(args[0], grid)
            return body.with_values(CALENDAR[name](body.values)).unnamed()
        if name == "time":
            return self._seconds(grid)
        if name == "pi":
            return np.full(len(grid), np.pi)
        if name == "vector":
            return Columns(NAMELESS, self.scalar(args[0], grid)[:, None])
        if name == "scalar":
            return self._to_scalar(self.vector(args[0], grid))
        if name == "timestamp":
            return self._timestamp(args[0], grid)
        if name == "absent":
            return self._absent(args[0], ~self.vector(args[0], grid).any_present())
        if name == "absent_over_time":
            counted = self._over_time(nodes.Call("present_over_time", args, "vector"), grid, twins_allowed=True)
            return self._absent(args[0], ~counted.any_present())
        if name == "clamp":
            return self._clamp(args, grid)
        if name in ("sort", "sort_desc"):
            return _sorted(self.vector(args[0], grid), descending=name == "sort_desc")
        if name == "histogram_quantile":
            quantiles, buckets = self.scalar(args[0], grid), self.vector(args[1], grid)
            result = histogram_quantile(quantiles, buckets)
            require_distinct(result)
            return result
        if name in ("label_replace", "label_join"):
            body = self.vector(args[0], grid)
            relabel = label_replace if name == "label_replace" else label_join
            result = Columns(relabel(body.frame, *(self.text(arg) for arg in args[1:])), body.values, body.present)
            require_distinct(result)
            return result
        if name in NATIVE_HISTOGRAMS:
            # as Prometheus does where no sample is a native histogram
            return nothing(len(grid))
        raise PromQLError(f"function {name} is not supported")

    def _seconds(self, grid: Grid) -> Floats:
        return grid.steps / 1000.0

    def _to_scalar(self, body: Columns) -> Floats:
        mask = body.mask()
        single = mask.sum(axis=1) == 1
        if not single.any():
            return np.full(body.steps, np.nan)
        column = mask.argmax(axis=1)
        return np.where(single, body.values[np.arange(body.steps), column], np.nan)

    def _timestamp(self, node: nodes.Node, grid: Grid) -> Columns:
        if isinstance(node, nodes.Selector):
            body, times = self.selecting.instants(node, grid, stamps=True)
            stamps = np.broadcast_to(times / 1000.0, body.values.shape)
        else:
            body = self.vector(node, grid)
            stamps = np.broadcast_to(self._seconds(grid)[:, None], body.values.shape)
        return body.with_values(stamps).unnamed()

    def _absent(self, node: nodes.Node, missing: Bools) -> Columns:
        selector = node.selector if isinstance(node, nodes.RangeSelector) else node
        frame = absent_frame(selector if isinstance(selector, nodes.Selector) else None)
        return Columns(frame, np.ones((len(missing), 1)), missing[:, None])

    def _clamp(self, args: Sequence[nodes.Node], grid: Grid) -> Columns:
        body = self.vector(args[0], grid)
        low, high = (self.scalar(arg, grid)[:, None] for arg in args[1:])
        result = body.with_values(clamp(body.values, low, high))
        if (low > high).any():
            result.present = body.mask() & ~(low > high)
        return result.unnamed()

    # --- ranges

    def _over_time(self, node: nodes.Call, grid: Grid, twins_allowed: bool = False) -> Columns:
        function = WINDOW_FUNCTIONS[node.function]
        body: nodes.RangeSelector | nodes.Subquery | None = None
        scalars: list[Floats] = []
        for arg in node.args:
            if isinstance(arg, (nodes.RangeSelector, nodes.Subquery)):
                body = arg
            else:
                scalars.append(self.scalar(arg, grid))
        if body is None:
            raise PromQLError(f"{node.function} expects a range vector")
        when = body.selector.when if isinstance(body, nodes.RangeSelector) else body.when
        ends = np.broadcast_to(grid.moments(when), (len(grid),))
        starts = ends - body.range
        places = [Place(*p) for p in zip(starts.tolist(), ends.tolist(), grid.steps.tolist(), strict=True)]
        frame, cut = self._cutter(body, starts, ends, grid)
        if len(frame) == 0 or not places:
            return nothing(len(grid))
        result = over_steps(function, cut, frame, places, scalars, budget=self.budget)
        if node.function == "last_over_time" or twins_allowed:
            return result
        return result.unnamed()

    def window(self, body: nodes.RangeSelector | nodes.Subquery, grid: Grid) -> Samples:
        """The samples of a range at the first step of the grid."""
        with np.errstate(all="ignore"):
            when = body.selector.when if isinstance(body, nodes.RangeSelector) else body.when
            ends = grid.moments(when)
            return self._cutter(body, ends - body.range, ends, grid)[1](0)

    def _cutter(
        self, body: nodes.RangeSelector | nodes.Subquery, starts: Ints, ends: Ints, grid: Grid
    ) -> tuple[Frame, Callable[[int], Samples]]:
        """The frame of a range, and a function that gives the samples of one step's window."""
        if len(grid) == 0:
            return EMPTY, lambda _: Samples(ends, np.empty((0, 0)), EMPTY)
        selecting = self.selecting
        if isinstance(body, nodes.RangeSelector):
            selector, first, last = body.selector, int(starts.min()), int(ends.max())
            if selecting.size(selector, first, last) > CELLS:
                # steps far apart: the ticks between their windows need not be read
                frame = selecting.resolve(selector).frame
                shift = 0 if selecting.side == "left" else 1
                return frame, lambda t: selecting.samples(selector, int(starts[t]) + shift, int(ends[t]))
            samples = selecting.samples(selector, first, last)
        else:
            samples = self._subquery(body, starts, ends, grid)
        lows = np.searchsorted(samples.ticks, starts, selecting.side)  # type: ignore[call-overload]
        highs = np.searchsorted(samples.ticks, ends, "right")
        return samples.frame, lambda t: Samples(
            samples.ticks[lows[t] : highs[t]], samples.values[lows[t] : highs[t]], samples.frame
        )

    def _subquery(self, body: nodes.Subquery, starts: Ints, ends: Ints, grid: Grid) -> Samples:
        first, last = int(starts.min()), int(ends.max())
        step = body.step or self.subquery_step
        begin = -(-first // step) * step
        inner = Grid(begin, last, step, grid.first, grid.last)
        if len(inner) > SUBQUERY_STEPS:
            raise PromQLError(f"subquery has {len(inner)} steps, more than {SUBQUERY_STEPS}")
        if len(inner) == 0:
            return Samples(inner.steps, np.empty((0, 0)), EMPTY)
        columns = self.vector(body.body, inner) if nodes.kind(body.body) == "vector" else None
        if columns is None:
            columns = Columns(NAMELESS, self.scalar(body.body, inner)[:, None])
        values = columns.values
        if columns.present is not None:
            values = values.copy()
            values.view(np.int64)[~columns.present] = ABSENT_BITS
        return Samples(inner.steps, values, columns.frame)


def _sorted(body: Columns, descending: bool) -> Columns:
    """Order means something for one step alone, as in Prometheus."""
    if body.steps != 1:
        return body
    columns = np.arange(len(body.frame)) if body.present is None else np.flatnonzero(body.present[0])
    keys = body.values[0, columns]
    order = columns[np.argsort(-keys if descending else keys, kind="stable")]
    return Columns(body.frame.taken(order), body.values[:, order])
