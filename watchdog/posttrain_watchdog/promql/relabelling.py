"""label_replace and label_join: the same samples under other labels, and the labels of `absent`.

Promises: computed on frames alone and kept there. Go's template syntax: $1, ${1}, ${name}, $$.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.frame import NAMELESS, Frame, value_of, with_labels
from posttrain_watchdog.promql.nodes import Selector
from posttrain_watchdog.series.index import NAME
from posttrain_watchdog.series.matchers import anchored

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_REFERENCE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})", re.ASCII)


def label_replace(frame: Frame, target: str, template: str, source: str, pattern: str) -> Frame:
    """Raises PromQLError for an expression or a label name that is not valid."""
    try:
        expression = anchored(pattern)
    except ValueError as error:
        raise PromQLError(f"invalid regular expression in label_replace(): {pattern}") from error
    if not _LABEL_NAME.fullmatch(target):
        raise PromQLError(f"invalid destination label name in label_replace(): {target}")

    def replaced(metric: Metric) -> Metric:
        match = expression.fullmatch(value_of(metric, source))
        if match is None:
            return metric
        return with_labels(metric, {target: expand(template, match)})

    return frame.derive(
        ("label_replace", target, template, source, pattern),
        lambda: Frame([replaced(m) for m in frame.metrics], frame.passing),
    )


def expand(template: str, match: Any) -> str:
    """Go's regexp.Expand: an unknown group is empty."""

    def group(reference: re.Match[str]) -> str:
        name = reference.group(1) or reference.group(2)
        if name is None:
            return "$"
        key: int | str = int(name) if name.isdigit() else name
        try:
            return match.group(key) or ""
        except (IndexError, KeyError):
            return ""

    return _REFERENCE.sub(group, template)


def label_join(frame: Frame, target: str, separator: str, *sources: str) -> Frame:
    """Raises PromQLError for a label name that is not valid."""
    for name in (target, *sources):
        if not _LABEL_NAME.fullmatch(name):
            raise PromQLError(f"invalid label name in label_join(): {name}")
    return frame.derive(
        ("label_join", target, separator, sources),
        lambda: Frame(
            [with_labels(m, {target: separator.join(value_of(m, s) for s in sources)}) for m in frame.metrics],
            frame.passing,
        ),
    )


@lru_cache(maxsize=1024)
def absent_frame(selector: Selector | None) -> Frame:
    """What absent() can know of the missing series: labels with exactly one condition, an equality."""
    if selector is None or len(selector.alternatives) != 1:
        return NAMELESS
    found: dict[str, str] = {}
    seen: set[str] = set()
    for matcher in selector.alternatives[0]:
        if matcher.name == NAME:
            continue
        if matcher.operator == "=" and matcher.name not in seen:
            found[matcher.name] = matcher.value
        else:
            found.pop(matcher.name, None)
        seen.add(matcher.name)
    return Frame([Metric("", found)])
