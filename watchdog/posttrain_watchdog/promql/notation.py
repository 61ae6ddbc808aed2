"""Prometheus' notation for test series: `name{label="value"} 1+2x3 _ stale NaN`.

Promises: what promqltest and promtool's rule tests mean by it, values accumulated in the same order of additions.
"""

from __future__ import annotations

import re

from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql.tokens import fault
from posttrain_watchdog.series.index import NAME
from posttrain_watchdog.series.store import STALE

MAX_VALUES = 1_000_000
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PAIR = re.compile(r"""\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)\s*""")
# no hexadecimal here: in `0x10` the x repeats
_NUMBER = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[iI][nN][fF]|[nN][aA][nN])"
_ITEM = re.compile(
    rf"(?P<start>{_NUMBER}|stale|_)(?P<step>[+-](?:{_NUMBER.removeprefix('[+-]?')}))?(?:x(?P<times>\d+))?"
)
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3}))")
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def unquote(text: str) -> str:
    """A PromQL string literal's value."""
    if text.startswith("`"):
        return text[1:-1]

    def plain(match: re.Match[str]) -> str:
        simple, *numbers, octal = match.groups()
        if simple is not None:
            return _SIMPLE.get(simple, simple)
        if octal is not None:
            return chr(int(octal, 8))
        return chr(int(next(n for n in numbers if n is not None), 16))

    return _ESCAPE.sub(plain, text[1:-1])


def parse_number(text: str) -> float:
    """A number as PromQL writes it. Raises ValueError."""
    bare = text.lstrip("+-")
    if bare[:2] in ("0x", "0X"):
        value = float(int(bare, 16))
        return -value if text.startswith("-") else value
    return float(text)


def take_metric(text: str) -> tuple[Metric, str]:
    """The metric that the text begins with, and the rest. Raises PromQLError."""
    begin = len(text) - len(text.lstrip())
    match = _NAME.match(text, begin)
    name = match.group() if match else ""
    position = match.end() if match else begin
    labels: dict[str, str] = {}
    after = re.compile(r"\s*\{").match(text, position)
    if after is None:
        if not name:
            raise fault(text, position, "expected a metric")
        return Metric(name), text[position:]
    position = after.end()
    while True:
        pair = _PAIR.match(text, position)
        if pair is not None:
            labels[pair.group(1)] = unquote(pair.group(2))
            position = pair.end()
        if text[position : position + 1] == "," and pair is not None:
            position += 1
            continue
        closing = re.compile(r"\s*\}").match(text, position)
        if closing is None:
            raise fault(text, position, "expected a label, a comma or a closing brace")
        name = labels.pop(NAME, name)
        return Metric(name, labels), text[closing.end() :]


def parse_metric(text: str) -> Metric:
    """`name{label="value"}`, with or without a name. Raises PromQLError."""
    metric, rest = take_metric(text)
    if rest.strip():
        raise fault(text, len(text) - len(rest), f"unexpected text after the metric: {rest.strip()!r}")
    return metric


def parse_values(text: str) -> list[float | None]:
    """`1+2x3` is 1 3 5 7; `4x2` is 4 4 4; `_` a gap, `_x3` three; `stale` a staleness marker. None is a gap.

    Raises PromQLError.
    """
    values: list[float | None] = []
    for match in re.finditer(r"\S+", text):
        item = _ITEM.fullmatch(match.group())
        if item is None:
            raise fault(text, match.start(), f"not a series value: {match.group()!r}")
        start, step = item.group("start"), item.group("step")
        times = None if item.group("times") is None else int(item.group("times"))
        if (start in ("_", "stale") and step is not None) or (step is not None and times is None):
            raise fault(text, match.start(), f"not a series value: {match.group()!r}")
        if len(values) + (times or 0) > MAX_VALUES:
            raise fault(text, match.start(), f"more than {MAX_VALUES} values")
        if start == "_":
            values.extend([None] * (1 if times is None else times))
            continue
        value = STALE if start == "stale" else parse_number(start)
        increment = parse_number(step) if step is not None else 0.0
        for _ in range((times or 0) + 1):
            values.append(value)
            # the marker's bit pattern would not survive an addition
            if step is not None:
                value += increment
    return values


def parse_series(text: str) -> tuple[Metric, list[float | None]]:
    """A line of a `load` block: the metric and its values, one an interval. Raises PromQLError."""
    metric, rest = take_metric(text)
    return metric, parse_values(rest)
