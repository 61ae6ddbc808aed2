"""From text to tree, safely.

Promises: no text, however long or nested, ends the process (promql_parser overflows the stack at some thousand
levels, so length and nesting are capped before it sees the text); every error is a PromQLError, with a line and a
column where the text itself is at fault.
"""

from __future__ import annotations

from functools import lru_cache

import promql_parser

from posttrain_watchdog.promql import nodes
from posttrain_watchdog.promql.blame import locate
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.tokens import Token, fault, tokenize
from posttrain_watchdog.promql.translate import translate

MAX_LENGTH = 65_536
"""characters"""
MAX_NESTING = 128
"""brackets within brackets"""
MAX_OPERATORS = 256
"""operators in one expression: a chain of them is a tree as deep as it is long"""
RENAMED = {"holt_winters": "double_exponential_smoothing"}


KEPT_LENGTH = 4096
"""characters of an expression that is remembered with its tree"""


def parse(text: str) -> nodes.Node:
    """The tree of an expression. Raises PromQLError."""
    return _remembered(text) if len(text) <= KEPT_LENGTH else _parse(text)


@lru_cache(maxsize=1024)
def _remembered(text: str) -> nodes.Node:
    return _parse(text)


def _parse(text: str) -> nodes.Node:
    if len(text) > MAX_LENGTH:
        raise PromQLError(f"expression has {len(text)} characters, more than {MAX_LENGTH}", 1, 1)
    tokens = tokenize(text)
    _guard(text, tokens)
    try:
        return _tree(text, tokens)
    except PromQLError as error:
        raise locate(text, tokens, error.message, _complaint) from None


def _tree(text: str, tokens: list[Token]) -> nodes.Node:
    try:
        return translate(promql_parser.parse(_modernised(text, tokens)))
    except PromQLError:
        raise
    except ValueError as error:
        raise PromQLError(str(error)) from None
    except BaseException as error:
        # a panic of the Rust side arrives as a BaseException of its own
        if type(error).__name__ != "PanicException":
            raise
        raise PromQLError("the parser gave up on this expression") from None


def _complaint(part: str) -> str | None:
    try:
        _tree(part, tokenize(part))
    except PromQLError as error:
        return error.message
    return None


def _guard(text: str, tokens: list[Token]) -> None:
    depth = operators = 0
    braces = False
    previous: Token | None = None
    for token in tokens:
        if token.kind == "bracket":
            braces = token.text == "{"
            depth += 1 if token.text in "([{" else -1
            if depth > MAX_NESTING:
                raise fault(text, token.start, f"more than {MAX_NESTING} levels of brackets")
        elif not braces and (token.kind == "operator" or token.text.lower() in ("and", "or", "unless", "atan2")):
            operators += 1
            if operators > MAX_OPERATORS:
                raise fault(text, token.start, f"more than {MAX_OPERATORS} operators")
            if token.text == "-" and previous is not None and previous.text == "@":
                # the parser's datetime cannot hold a moment before 1970
                raise fault(text, token.start, "@ with a time before 1970 is not supported")
        previous = token


def _modernised(text: str, tokens: list[Token]) -> str:
    """As the parser understands it: old function names under their new ones; raw strings in double quotes, because
    the parser looks for escapes in those of label matchers."""
    for i in range(len(tokens) - 1, -1, -1):
        token = tokens[i]
        new = None
        if token.kind == "name" and i + 1 < len(tokens) and tokens[i + 1].text == "(":
            new = RENAMED.get(token.text)
        elif token.kind == "string" and token.text[0] == "`":
            new = _quoted(token.text[1:-1])
        if new is not None:
            text = text[: token.start] + new + text[token.end :]
    return text


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
