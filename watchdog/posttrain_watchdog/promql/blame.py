"""Where an expression goes wrong: promql_parser says what, but not where.

Promises: a line and a column for every message. For a fault of form, the first token that no expression could have
there; for a fault of meaning (types, unknown functions), the smallest part that alone draws the same complaint.
"""

from __future__ import annotations

from collections.abc import Callable

from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.grammar import Grammar, UnexpectedToken
from posttrain_watchdog.promql.tokens import Token, fault

TRIES = 400
"""parts that are parsed again in search of the fault"""


def locate(text: str, tokens: list[Token], message: str, complaint: Callable[[str], str | None]) -> PromQLError:
    """The error with its place. `complaint(part)` is the message that a part of the text alone draws, if any."""
    if not tokens:
        return fault(text, 0, "no expression found in input")
    try:
        spans = Grammar(text, tokens).check()
    except UnexpectedToken as unexpected:
        token = unexpected.token
        what = "end of the expression" if token.kind == "end" else repr(token.text)
        return fault(text, token.start, f"unexpected {what}, expected {unexpected.expected}")
    for span in sorted(spans, key=lambda s: s.end - s.start)[:TRIES]:
        if complaint(text[span.start : span.end]) == message:
            return fault(text, span.anchor, message)
    return fault(text, tokens[0].start, message)
