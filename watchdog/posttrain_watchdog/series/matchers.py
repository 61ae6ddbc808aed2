"""Label matchers as Prometheus has them.

Promises: `=`, `!=`, `=~`, `!~` with RE2 expressions anchored at both ends; an absent label reads as "".
Never: backtracking (RE2 is linear), nor a line on stderr for a pattern that does not compile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import re2

MatchOperator = Literal["=", "!=", "=~", "!~"]


@lru_cache(maxsize=1024)
def anchored(pattern: str) -> Any:
    """The compiled RE2 expression; use `.fullmatch`. Raises ValueError for a pattern that RE2 rejects."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        text = error.args[0] if error.args else ""
        reason = text.decode() if isinstance(text, bytes) else str(text)
        raise ValueError(f"invalid regular expression {pattern!r}: {reason}") from None


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on one label. `name` may be `__name__`."""

    name: str
    operator: MatchOperator
    value: str
    _expression: Any = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.operator in ("=~", "!~"):
            object.__setattr__(self, "_expression", anchored(self.value))

    def matches(self, value: str) -> bool:
        if self.operator == "=":
            return value == self.value
        if self.operator == "!=":
            return value != self.value
        found = self._expression.fullmatch(value) is not None
        return found if self.operator == "=~" else not found

    def __str__(self) -> str:
        quoted = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.name}{self.operator}"{quoted}"'
