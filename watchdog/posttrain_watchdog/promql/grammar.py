"""PromQL's grammar, for one purpose: to say which token cannot be where it is.

Promises: accepts at least what promql_parser accepts, builds no tree, and notes the span of every part of the
expression. Recursion is bounded by the nesting that the guards let through.
"""

from __future__ import annotations

from dataclasses import dataclass

from posttrain_watchdog.promql.tokens import Token

AGGREGATIONS = frozenset(
    "sum min max avg group stddev stdvar count count_values bottomk topk quantile limitk limit_ratio".split()  # noqa: SIM905
)
WORDS = frozenset({"and", "or", "unless", "atan2"})
SIGNS = frozenset("+-*/%^") | {"==", "!=", ">", "<", ">=", "<="}
MATCHES = frozenset({"=", "!=", "=~", "!~"})
END = Token("end", "", 0)


class UnexpectedToken(Exception):
    """`token` cannot stand there; `expected` says what could."""

    def __init__(self, token: Token, expected: str) -> None:
        self.token = token
        self.expected = expected
        super().__init__(expected)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the text that is an expression of its own, and the place that stands for it."""

    start: int
    end: int
    anchor: int


class Grammar:
    """Checks tokens from left to right."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.end = Token("end", "", len(text))
        self.at = 0
        self.spans: list[Span] = []

    def check(self) -> list[Span]:
        """The spans of all parts. Raises UnexpectedToken."""
        self._expression()
        if self._peek().kind != "end":
            raise UnexpectedToken(self._peek(), "an operator or the end of the expression")
        return self.spans

    # --- tokens

    def _peek(self, ahead: int = 0) -> Token:
        index = self.at + ahead
        return self.tokens[index] if index < len(self.tokens) else self.end

    def _take(self) -> Token:
        token = self._peek()
        self.at += 1
        return token

    def _accept(self, *texts: str) -> bool:
        token = self._peek()
        if token.kind not in ("string", "end") and token.text.lower() in texts:
            self.at += 1
            return True
        return False

    def _require(self, text: str, expected: str | None = None) -> None:
        if not self._accept(text):
            raise UnexpectedToken(self._peek(), expected or f"{text!r}")

    def _require_kind(self, expected: str, *kinds: str) -> Token:
        if self._peek().kind not in kinds:
            raise UnexpectedToken(self._peek(), expected)
        return self._take()

    # --- rules

    def _expression(self) -> None:
        begin = self._peek().start
        previous = begin
        self._operand()
        while True:
            operator = self._peek()
            if not (operator.text in SIGNS or (operator.kind == "name" and operator.text.lower() in WORDS)):
                return
            self.at += 1
            self._accept("bool")
            if self._accept("on", "ignoring"):
                self._labels()
                if self._accept("group_left", "group_right") and self._peek().text == "(":
                    self._labels()
            while self._accept("fill", "fill_left", "fill_right"):
                self._require("(")
                self._number()
                self._require(")")
            operand = self._peek().start
            self._operand()
            self._note(previous, operator.start)
            self._note(begin, operator.start)
            previous = operand

    def _note(self, start: int, anchor: int) -> None:
        self.spans.append(Span(start, self.tokens[self.at - 1].end, anchor))

    def _operand(self) -> None:
        begin = self._peek().start
        while self._accept("+", "-"):
            pass
        inner = self._peek().start
        self._primary()
        self._note(inner, inner)
        while True:
            token = self._peek()
            if self._accept("["):
                self._duration()
                if self._accept(":") and self._peek().text != "]":
                    self._duration()
                self._require("]", "']' after the range")
            elif self._accept("offset"):
                self._accept("-", "+")
                self._duration()
            elif self._accept("@"):
                self._instant()
            else:
                break
            self._note(inner, token.start)
        if begin != inner:
            self._note(begin, begin)

    def _primary(self) -> None:
        token = self._peek()
        if token.kind in ("number", "duration", "string"):
            self.at += 1
        elif self._accept("("):
            self._expression()
            self._require(")", "')' or an operator")
        elif token.text == "{":
            self._matchers()
        elif token.kind == "name" and token.text.lower() not in WORDS:
            self._named()
        else:
            raise UnexpectedToken(token, "an expression")

    def _named(self) -> None:
        name = self._take().text.lower()
        following = self._peek()
        aggregation = name in AGGREGATIONS and (following.text == "(" or following.text.lower() in ("by", "without"))
        if aggregation and self._accept("by", "without"):
            self._labels()
            self._arguments()
        elif following.text == "(":
            self._arguments()
            if aggregation and self._accept("by", "without"):
                self._labels()
        elif following.text == "{":
            self._matchers()

    def _arguments(self) -> None:
        self._require("(", "'(' with the arguments")
        if self._accept(")"):
            return
        self._expression()
        while self._accept(","):
            self._expression()
        self._require(")", "',' or ')' after the argument")

    def _labels(self) -> None:
        self._require("(", "'(' with label names")
        while self._peek().text != ")":
            self._require_kind("a label name", "name", "string")
            if not self._accept(","):
                break
        self._require(")", "',' or ')' after the label name")

    def _matchers(self) -> None:
        self._require("{")
        while self._peek().text != "}":
            label = self._require_kind("a label name or '}'", "name", "string")
            if self._peek().text in MATCHES:
                self.at += 1
                self._require_kind("a quoted label value", "string")
            elif label.kind == "name":
                raise UnexpectedToken(self._peek(), "one of = != =~ !~")
            if not self._accept(",", "or"):
                break
        self._require("}", "',' or '}' after the label matcher")

    def _duration(self) -> None:
        self._require_kind("a duration such as 5m", "duration", "number")

    def _number(self) -> None:
        self._accept("-", "+")
        if not self._accept("inf", "nan"):
            self._require_kind("a number", "number", "duration")

    def _instant(self) -> None:
        if self._accept("start", "end"):
            self._require("(")
            self._require(")")
        else:
            self._number()
