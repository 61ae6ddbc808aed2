"""The tree that is evaluated: immutable, comparable, durations in whole milliseconds.

Never refers to promql_parser: its objects are translated once, because reading them is slow and their text form
loses sub-second ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from posttrain_watchdog.series.matchers import Matcher

Kind = Literal["scalar", "string", "vector", "matrix"]


@dataclass(frozen=True, slots=True)
class When:
    """`offset` and `@` of a selector or subquery, milliseconds; `at` may be "start" or "end"."""

    offset: int = 0
    at: int | Literal["start", "end"] | None = None


@dataclass(frozen=True, slots=True)
class Number:
    value: float


@dataclass(frozen=True, slots=True)
class Text:
    value: str


@dataclass(frozen=True, slots=True)
class Selector:
    """An instant vector selector; the metric's name is among the matchers. Any one of the alternatives suffices."""

    alternatives: tuple[tuple[Matcher, ...], ...]
    when: When = When()


@dataclass(frozen=True, slots=True)
class RangeSelector:
    selector: Selector
    range: int


@dataclass(frozen=True, slots=True)
class Subquery:
    body: Node
    range: int
    step: int | None
    when: When = When()


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    args: tuple[Node, ...]
    kind: Kind


@dataclass(frozen=True, slots=True)
class Aggregation:
    operator: str
    body: Node
    parameter: Node | None
    labels: tuple[str, ...]
    without: bool


@dataclass(frozen=True, slots=True)
class Negation:
    body: Node


@dataclass(frozen=True, slots=True)
class Matching:
    """How the two sides of a binary operator find each other. `many` names the side with many, if any."""

    on: bool = False
    labels: tuple[str, ...] = ()
    many: Literal["left", "right"] | None = None
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Binary:
    operator: str
    left: Node
    right: Node
    matching: Matching
    returns_bool: bool = False


Node = Number | Text | Selector | RangeSelector | Subquery | Call | Aggregation | Negation | Binary

_FUNCTIONS = """
abs absent absent_over_time acos acosh asin asinh atan atanh avg_over_time ceil changes clamp clamp_max clamp_min cos
cosh count_over_time day_of_month day_of_week day_of_year days_in_month deg delta deriv double_exponential_smoothing exp
floor histogram_count histogram_fraction histogram_quantile histogram_sum hour idelta increase irate label_join
label_replace last_over_time ln log10 log2 max_over_time min_over_time minute month pi predict_linear present_over_time
quantile_over_time rad rate resets round scalar sgn sin sinh sort sort_desc sqrt stddev_over_time stdvar_over_time
sum_over_time tan tanh time timestamp vector year
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""the functions of Prometheus 2.42"""
AGGREGATIONS = frozenset(
    """sum avg count min max group stddev stdvar topk bottomk quantile count_values""".split()  # noqa: SIM905
)
COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<="})
SETS = frozenset({"and", "or", "unless"})


def kind(node: Node) -> Kind:
    """The PromQL type that a node evaluates to."""
    if isinstance(node, Number):
        return "scalar"
    if isinstance(node, Text):
        return "string"
    if isinstance(node, (RangeSelector, Subquery)):
        return "matrix"
    if isinstance(node, Call):
        return node.kind
    if isinstance(node, Negation):
        return kind(node.body)
    if isinstance(node, Binary):
        return "scalar" if kind(node.left) == kind(node.right) == "scalar" else "vector"
    return "vector"


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Call):
        return node.args
    if isinstance(node, Aggregation):
        return (node.body,) if node.parameter is None else (node.parameter, node.body)
    if isinstance(node, Binary):
        return (node.left, node.right)
    if isinstance(node, (Negation, Subquery)):
        return (node.body,)
    if isinstance(node, RangeSelector):
        return (node.selector,)
    return ()


def walk(node: Node) -> Iterator[Node]:
    """Every node, parents first, left to right."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(reversed(children(current)))
