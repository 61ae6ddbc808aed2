"""Binary operators between vectors: which series meet, and what the result is called.

Promises: the pairing depends on labels alone and is kept with the left frame; only where several series of one side
share a signature does an evaluation look at presence. Source: prometheus@2.42 promql/engine.go VectorBinop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql.columns import Bools, Columns, Floats, both, nothing, require_distinct
from posttrain_watchdog.promql.elementwise import ARITHMETIC, COMPARISON
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.frame import Frame, number, value_of, with_labels
from posttrain_watchdog.promql.nodes import Matching

Ints = NDArray[np.int64]
PAIRS = 5_000_000
DROPS_NAME = frozenset(ARITHMETIC) - {"atan2"}
"""operators whose result has no metric name; Prometheus 2.42 forgot atan2, and its tests hold it to that"""


@dataclass(slots=True)
class _Sides:
    """Signatures of both sides numbered alike: [SL] and [SR] in 0..count-1."""

    left: Ints
    right: Ints
    count: int
    left_repeats: bool
    right_repeats: bool


def _sides(left: Frame, right: Frame, matching: Matching) -> _Sides:
    def make() -> _Sides:
        a = left.signatures(matching.on, matching.labels)
        b = right.signatures(matching.on, matching.labels)
        of, firsts = number([*a, *b])
        of_left, of_right = of[: len(a)], of[len(a) :]
        return _Sides(
            of_left,
            of_right,
            len(firsts),
            len(np.unique(of_left)) < len(a),
            len(np.unique(of_right)) < len(b),
        )

    return left.with_other(right, ("sides", matching.on, matching.labels), make)


def _present_by(columns: Columns, of: Ints, count: int) -> Ints:
    """[T, count] samples of each signature."""
    found = np.zeros((columns.steps, count), dtype=np.int64)
    if columns.present is None:
        found += np.bincount(of, minlength=count)
    else:
        for t in range(columns.steps):
            found[t] = np.bincount(of[columns.present[t]], minlength=count)
    return found


# --- and, or, unless


def set_operation(operator: str, left: Columns, right: Columns, matching: Matching) -> Columns:
    sides = _sides(left.frame, right.frame, matching)
    if operator == "or":
        there = _present_by(left, sides.left, sides.count) > 0
        added = ~there[:, sides.right]
        if right.present is not None:
            added &= right.present
        if not added.any():
            return left
        values = np.concatenate([left.values, right.values], axis=1)
        present = np.concatenate([left.mask(), added], axis=1)
        return Columns(left.frame.joined(right.frame), values, None if present.all() else present)
    there = _present_by(right, sides.right, sides.count) > 0
    wanted: Bools = there[:, sides.left]
    if operator == "unless":
        wanted = ~wanted
    present_left = both(left.present, wanted)
    return Columns(left.frame, left.values, None if present_left is None or present_left.all() else present_left)


# --- arithmetic and comparisons


@dataclass(slots=True)
class _Pairs:
    """Columns that meet: `many[P]` and `one[P]`, with the result's metrics."""

    many: Ints
    one: Ints
    frame: Frame


def operate(operator: str, left: Columns, right: Columns, matching: Matching, returns_bool: bool) -> Columns:
    """Raises PromQLError where a match is ambiguous."""
    if left.values.shape[1] == 0 or right.values.shape[1] == 0:
        return nothing(left.steps)
    # `many` is the left side unless group_right says otherwise
    swapped = matching.many == "right"
    many, one = (right, left) if swapped else (left, right)
    sides = _sides(many.frame, one.frame, matching)
    if sides.right_repeats:
        # Prometheus evaluates nothing, and complains of nothing, where one side of the step is empty
        busy = many.any_present() & one.any_present()
        if (_present_by(one, sides.right, sides.count)[busy] > 1).any():
            side = "left" if swapped else "right"
            raise PromQLError(
                f"found duplicate series for the match group on the {side} hand-side of the operation;"
                "many-to-many matching not allowed: matching labels must be unique on one side"
            )
        if one.steps == 1 and one.present is not None:
            one = _only_present(one)
            sides = _sides(many.frame, one.frame, matching)
    drops_name = operator in DROPS_NAME or returns_bool
    pairs = many.frame.with_other(
        one.frame, ("pairs", matching, drops_name), lambda: _pair(many.frame, one.frame, sides, matching, drops_name)
    )
    present = both(
        None if many.present is None else many.present[:, pairs.many],
        None if one.present is None else one.present[:, pairs.one],
    )
    a, b = many.values[:, pairs.many], one.values[:, pairs.one]
    if swapped:
        a, b = b, a
    if operator in ARITHMETIC:
        result = Columns(pairs.frame, ARITHMETIC[operator](a, b), present)
    else:
        holds = COMPARISON[operator](a, b)
        if returns_bool:
            result = Columns(pairs.frame, holds.astype(np.float64), present)
        else:
            result = Columns(pairs.frame, a, both(present, holds))
    if matching.many is None and sides.left_repeats:
        kept = _present_by(result, sides.left[pairs.many], sides.count)
        if (kept > 1).any():
            raise PromQLError(
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
            )
    try:
        require_distinct(result)
    except PromQLError:
        if matching.many is None:
            raise
        raise PromQLError("multiple matches for labels: grouping labels must ensure unique matches") from None
    return result


def _only_present(columns: Columns) -> Columns:
    assert columns.present is not None
    chosen = np.flatnonzero(columns.present[0])
    return Columns(columns.frame.taken(chosen), columns.values[:, chosen])


def _pair(many: Frame, one: Frame, sides: _Sides, matching: Matching, drops_name: bool) -> _Pairs:
    order = np.argsort(sides.right, kind="stable")
    ordered = sides.right[order]
    low = np.searchsorted(ordered, sides.left, "left")
    high = np.searchsorted(ordered, sides.left, "right")
    repeat = high - low
    if int(repeat.sum()) > PAIRS:
        raise PromQLError("too many series share a match group")
    chosen = np.repeat(np.arange(len(many)), repeat)
    offsets = np.arange(len(chosen)) - np.repeat(np.cumsum(repeat) - repeat, repeat)
    partner = order[np.repeat(low, repeat) + offsets]
    metrics = [
        _result_metric(many.metrics[m], one.metrics[o], matching, drops_name)
        for m, o in zip(chosen.tolist(), partner.tolist(), strict=True)
    ]
    return _Pairs(chosen, partner, Frame(metrics, many.passing or one.passing))


def _result_metric(many: Metric, one: Metric, matching: Matching, drops_name: bool) -> Metric:
    name = "" if drops_name else many.name
    if matching.many is not None:
        metric = Metric(name, many.labels)
        if matching.include:
            return with_labels(metric, {label: value_of(one, label) for label in matching.include})
        return metric
    if matching.on:
        # on() keeps the name only where it is among the labels
        pairs = tuple(p for p in many.labels if p[0] in matching.labels)
        return Metric(name if "__name__" in matching.labels else "", pairs)
    if not matching.labels:
        return Metric(name, many.labels)
    return Metric(name, tuple(p for p in many.labels if p[0] not in matching.labels))


def with_scalar(operator: str, vector: Columns, scalar: Floats, scalar_left: bool, returns_bool: bool) -> Columns:
    """A vector and a scalar [T, 1]."""
    a, b = (scalar, vector.values) if scalar_left else (vector.values, scalar)
    if operator in ARITHMETIC:
        result = vector.with_values(ARITHMETIC[operator](a, b))
        return result.unnamed() if operator in DROPS_NAME else result
    holds = COMPARISON[operator](a, b)
    if returns_bool:
        return vector.with_values(holds.astype(np.float64)).unnamed()
    return Columns(vector.frame, vector.values, both(vector.present, holds))
