"""What an expression refers to, for those who check rules: metric names, matchers, labels."""

from __future__ import annotations

from posttrain_watchdog.promql import nodes
from posttrain_watchdog.promql.syntax import parse
from posttrain_watchdog.series.index import NAME
from posttrain_watchdog.series.matchers import Matcher


def selectors(expression: str | nodes.Node) -> list[tuple[str | None, tuple[Matcher, ...]]]:
    """Each selector of the expression in reading order: its metric name where one is fixed, and the other matchers.

    Raises PromQLError for text that does not parse.
    """
    tree = parse(expression) if isinstance(expression, str) else expression
    found = []
    for node in nodes.walk(tree):
        if isinstance(node, nodes.Selector):
            for matchers in node.alternatives:
                fixed = [m.value for m in matchers if m.name == NAME and m.operator == "="]
                others = tuple(m for m in matchers if m.name != NAME)
                found.append((fixed[0] if fixed else None, others))
    return found


def names(expression: str | nodes.Node) -> list[str]:
    """The metric names that an expression asks for by name, each once, in reading order."""
    return list(dict.fromkeys(name for name, _ in selectors(expression) if name is not None))
