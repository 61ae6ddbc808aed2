"""From promql_parser's objects to our nodes.

Promises: parentheses vanish, durations become milliseconds, `holt_winters` and its new name are one function.
Never evaluates, and never trusts `str()` of the parser's objects except for operators (which have no other form).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from posttrain_watchdog.promql import nodes
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.series.index import NAME
from posttrain_watchdog.series.matchers import Matcher, MatchOperator

MATCH_OPERATORS: dict[str, MatchOperator] = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
KINDS: dict[str, nodes.Kind] = {"Vector": "vector", "Scalar": "scalar", "Matrix": "matrix", "String": "string"}


def translate(tree: Any) -> nodes.Node:
    """Our tree for a parsed expression. Raises PromQLError for what is parsed but not supported here."""
    kind = type(tree).__name__
    return _TRANSLATORS[kind](tree)


def milliseconds(duration: timedelta | None) -> int:
    return 0 if duration is None else round(duration / timedelta(milliseconds=1))


def _when(tree: Any) -> nodes.When:
    at: Any = None
    if tree.at is not None:
        name = _enum_name(tree.at.type)
        # the text form has the milliseconds; the datetime form depends on the machine's time zone
        at = round(float(str(tree.at).removeprefix("@")) * 1000) if name == "At" else name.lower()
    return nodes.When(milliseconds(tree.offset), at)


def _enum_name(value: Any) -> str:
    return str(value).rsplit(".", 1)[-1]


def _matcher(tree: Any) -> Matcher:
    try:
        return Matcher(tree.name, MATCH_OPERATORS[_enum_name(tree.op)], tree.value)
    except ValueError as error:
        raise PromQLError(str(error)) from None


def _selector(tree: Any) -> nodes.Selector:
    common = [_matcher(m) for m in tree.matchers.matchers]
    if tree.name is not None:
        common.insert(0, Matcher(NAME, "=", tree.name))
    groups = [[_matcher(m) for m in group] for group in tree.matchers.or_matchers] or [[]]
    return nodes.Selector(tuple((*common, *group) for group in groups), _when(tree))


def _range_selector(tree: Any) -> nodes.RangeSelector:
    return nodes.RangeSelector(_selector(tree.vector_selector), milliseconds(tree.range))


def _subquery(tree: Any) -> nodes.Subquery:
    step = milliseconds(tree.step) or None
    return nodes.Subquery(translate(tree.expr), milliseconds(tree.range), step, _when(tree))


def _call(tree: Any) -> nodes.Call:
    if tree.func.name not in nodes.FUNCTIONS:
        raise PromQLError(f"function {tree.func.name} is not supported: Prometheus 2.42 does not have it")
    kind = KINDS[_enum_name(tree.func.return_type)]
    return nodes.Call(tree.func.name, tuple(translate(arg) for arg in tree.args), kind)


def _aggregation(tree: Any) -> nodes.Aggregation:
    if str(tree.op) not in nodes.AGGREGATIONS:
        raise PromQLError(f"aggregation {tree.op} is not supported: Prometheus 2.42 does not have it")
    parameter = None if tree.param is None else translate(tree.param)
    labels: tuple[str, ...] = ()
    without = False
    if tree.modifier is not None:
        labels = tuple(tree.modifier.labels)
        without = _enum_name(tree.modifier.type) == "Without"
    return nodes.Aggregation(str(tree.op), translate(tree.expr), parameter, labels, without)


def _binary(tree: Any) -> nodes.Binary:
    matching = nodes.Matching()
    returns_bool = False
    modifier = tree.modifier
    if modifier is not None:
        returns_bool = modifier.return_bool
        if modifier.fill_values.lhs is not None or modifier.fill_values.rhs is not None:
            raise PromQLError("fill modifiers of binary operators are not supported")
        on, labels = False, ()
        if modifier.matching is not None:
            on = _enum_name(modifier.matching.type) == "Include"
            labels = tuple(modifier.matching.labels)
        card = _enum_name(modifier.card)
        many = {"ManyToOne": "left", "OneToMany": "right"}.get(card)
        matching = nodes.Matching(on, labels, many, tuple(modifier.group_labels or ()))  # type: ignore[arg-type]
    return nodes.Binary(str(tree.op), translate(tree.lhs), translate(tree.rhs), matching, returns_bool)


_TRANSLATORS: dict[str, Callable[[Any], nodes.Node]] = {
    "NumberLiteral": lambda tree: nodes.Number(tree.val),
    "StringLiteral": lambda tree: nodes.Text(tree.val),
    "ParenExpr": lambda tree: translate(tree.expr),
    "UnaryExpr": lambda tree: nodes.Negation(translate(tree.expr)),
    "VectorSelector": _selector,
    "MatrixSelector": _range_selector,
    "SubqueryExpr": _subquery,
    "Call": _call,
    "AggregateExpr": _aggregation,
    "BinaryExpr": _binary,
}
