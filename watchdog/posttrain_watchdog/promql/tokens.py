"""Splits an expression into tokens with their places, for the guards and for telling where a fault is.

Promises: linear time, no recursion, whatever the input. The grammar itself is promql_parser's business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from posttrain_watchdog.promql.errors import PromQLError

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|\#[^\n]*)
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)
  | (?P<duration>(?:\d+(?:ms|[smhdwy]))+(?![\w.]))
  | (?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
  | (?P<operator>==|!=|>=|<=|=~|!~|[-+*/%^<>=@])
  | (?P<bracket>[()\[\]{}])
  | (?P<comma>,)
  | (?P<colon>:)
    """,
    re.VERBOSE,
)
_COLON = re.compile(":")


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def place(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1, of a character offset."""
    line = text.count("\n", 0, offset) + 1
    return line, offset - (text.rfind("\n", 0, offset) + 1) + 1


def fault(text: str, offset: int, message: str) -> PromQLError:
    return PromQLError(message, *place(text, offset))


def tokenize(text: str) -> list[Token]:
    """The tokens without spaces and comments. Raises PromQLError at a character that begins none."""
    found = []
    position = 0
    ranged = False
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            character = text[position]
            what = "unterminated quoted string" if character in "\"'`" else f"unexpected character {character!r}"
            raise fault(text, position, what)
        kind = match.lastgroup or ""
        if ranged and kind == "name" and match.group()[0] == ":":
            # between square brackets a colon parts range and step; elsewhere a name may begin with one
            match = _COLON.match(text, position)
            assert match is not None
            kind = "colon"
        if kind != "space":
            found.append(Token(kind, match.group(), position))
        if kind == "bracket":
            ranged = match.group() == "["
        position = match.end()
    return found
