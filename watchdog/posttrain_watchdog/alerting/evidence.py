"""Tells "the condition is false" from "nothing is known": a rule's expression with its filters taken out.

A comparison in PromQL drops the series that do not satisfy it, so a rule's result is empty both when all is well and
when the data ended. `opened` rewrites the expression so that it gives a sample wherever the condition *could be
judged*, whichever way it went, with the value that was judged:

    a > 5               -> a                      the compared value
    a > on (i) b        -> a and on (i) b         both sides must be there to be compared
    a and b             -> both opened            each side is judged
    a unless b          -> a opened               b need not exist
    a or b, f(a), sum by (l) (a), a[1h:]          opened inside
    topk(3, a)          -> a                      those left out were judged too
    absent(a)           -> known always           that there is no data is its very condition

An active alert whose labels the opened expression still has was judged false and resolves, with that value. One whose
labels it no longer has vanished. Promises: pure; never evaluates anything.
"""

from __future__ import annotations

from dataclasses import replace

from posttrain_watchdog.promql import nodes
from posttrain_watchdog.promql.nodes import (
    Aggregation,
    Binary,
    Call,
    Matching,
    Negation,
    Node,
    Number,
    Subquery,
    Text,
)

_ABSENT = frozenset({"absent", "absent_over_time"})
_CHOOSING = frozenset({"topk", "bottomk"})


def always_known(node: Node) -> bool:
    """Whether the condition can be judged without any data."""
    if isinstance(node, (Number, Text)):
        return True
    if isinstance(node, Call):
        return node.function in _ABSENT or all(always_known(a) for a in node.args)
    if isinstance(node, Binary):
        if node.operator == "unless":
            return always_known(node.left)
        either = any if node.operator == "or" else all
        return either(always_known(side) for side in (node.left, node.right))
    if isinstance(node, (Aggregation, Negation, Subquery)):
        return always_known(node.body)
    return False


def made_labels(node: Node) -> frozenset[str]:
    """Labels whose values are made of the samples themselves (count_values): they say nothing of what vanished."""
    return frozenset(
        each.parameter.value
        for each in nodes.walk(node)
        if isinstance(each, Aggregation) and each.operator == "count_values" and isinstance(each.parameter, Text)
    )


def opened(node: Node) -> Node:
    """The expression without its filters."""
    if isinstance(node, Binary):
        return _binary(node)
    if isinstance(node, Call):
        return replace(node, args=tuple(opened(a) for a in node.args))
    if isinstance(node, Aggregation) and node.operator in _CHOOSING:
        return opened(node.body)
    if isinstance(node, (Aggregation, Negation, Subquery)):
        return replace(node, body=opened(node.body))
    return node


def _binary(node: Binary) -> Node:
    left, right = opened(node.left), opened(node.right)
    if node.operator == "unless":
        return left
    if node.operator not in nodes.COMPARISONS or node.returns_bool:
        return replace(node, left=left, right=right)
    scalar = nodes.kind(left) == "scalar", nodes.kind(right) == "scalar"
    if scalar[1]:
        return left
    if scalar[0]:
        return right
    if node.matching.many == "right":
        # the labels are those of the right side, the value that of the left: only bool gives the labels, and no value
        return replace(node, left=left, right=right, returns_bool=True)
    return Binary("and", left, right, Matching(node.matching.on, node.matching.labels))
