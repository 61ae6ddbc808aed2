"""From template text to a tree. Promises: every fault is a TemplateError with line and column; depth is bounded."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_LENGTH = 65_536
MAX_DEPTH = 64


class TemplateError(ValueError):
    """A template that cannot be parsed or expanded."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        self.message, self.line, self.column = message, line, column
        super().__init__(message if line is None else f"{line}:{column}: {message}")


@dataclass(frozen=True, slots=True)
class Literal:
    value: object


@dataclass(frozen=True, slots=True)
class Variable:
    """$name with the fields behind it; the empty name is the root `$`."""

    name: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dot:
    """The current value with the fields behind it."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Function:
    name: str


@dataclass(frozen=True, slots=True)
class Nested:
    """A pipeline in parentheses, with the fields behind it."""

    pipeline: Pipeline
    fields: tuple[str, ...]


Operand = Literal | Variable | Dot | Function | Nested


@dataclass(frozen=True, slots=True)
class Command:
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`$a, $b := c | c | c`; assigns is False for `=`."""

    variables: tuple[str, ...]
    declares: bool
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    pipeline: Pipeline
    line: int


@dataclass(frozen=True, slots=True)
class Block:
    """if, with or range, with its `else`."""

    kind: str
    pipeline: Pipeline
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]
    line: int


Node = Text | Action | Block
Template = tuple[Node, ...]

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)|(?P<string>"(?:\\.|[^"\\\n])*"|`[^`]*`)|(?P<char>'(?:\\.|[^'\\\n])')"""
    r"""|(?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))"""
    r"""|(?P<variable>\$\w*)|(?P<field>\.\w+)|(?P<dot>\.)|(?P<declare>:=)|(?P<word>[A-Za-z_]\w*)|(?P<sign>[|(),=])"""
)
_ACTION = re.compile(r"\{\{(-(?=\s))?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "'": "'", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass(slots=True)
class _Token:
    kind: str
    text: str
    at: int


@dataclass(slots=True)
class _Piece:
    """Text between actions, or the tokens of one action."""

    text: str | None
    tokens: list[_Token]
    at: int


def _unquote(text: str) -> str:
    if text[0] == "`":
        return text[1:-1]

    def one(match: re.Match[str]) -> str:
        code = match.group(1)
        if code[0] in "xuU":
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, "\\" + code)

    return re.sub(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", one, text[1:-1], flags=re.DOTALL)


def _number(text: str) -> int | float:
    if re.search(r"[.eE]", text) and "x" not in text.lower():
        return float(text)
    # a leading 0 makes it octal in Go
    octal = re.fullmatch(r"([+-]?)0([0-7]+)", text)
    if octal:
        return int(octal.group(1) + octal.group(2), 8)
    return int(text, 16 if "x" in text.lower() else 10)


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        if len(source) > MAX_LENGTH:
            raise TemplateError(f"template has {len(source)} characters, more than {MAX_LENGTH}", 1, 1)
        self._pieces = self._cut()
        self._place = 0
        self._names: list[set[str]] = [{""}]

    def fault(self, message: str, at: int) -> TemplateError:
        line = self._source.count("\n", 0, at) + 1
        return TemplateError(message, line, at - (self._source.rfind("\n", 0, at) + 1) + 1)

    def _cut(self) -> list[_Piece]:
        pieces: list[_Piece] = []
        source, place, trim = self._source, 0, False
        while True:
            opening = _ACTION.search(source, place)
            text = source[place : opening.start() if opening else len(source)]
            if trim:
                text = text.lstrip()
            if opening and opening.group(1):
                text = text.rstrip()
            if text:
                pieces.append(_Piece(text, [], place))
            if opening is None:
                return pieces
            tokens, place, trim = self._lex(opening.end(), opening.start())
            if tokens is not None:
                pieces.append(_Piece(None, tokens, opening.start()))

    def _lex(self, place: int, start: int) -> tuple[list[_Token] | None, int, bool]:
        source = self._source
        comment = re.compile(r"\s*/\*.*?\*/\s*?(\s-)?\}\}", re.DOTALL).match(source, place)
        if comment:
            return None, comment.end(), bool(comment.group(1))
        tokens: list[_Token] = []
        while True:
            closing = re.compile(r"(\s-)?\}\}").match(source, place)
            if closing:
                return tokens, closing.end(), bool(closing.group(1))
            match = _TOKEN.match(source, place)
            if match is None:
                if place >= len(source):
                    raise self.fault("unclosed action", start)
                raise self.fault(f"unexpected {source[place]!r} in action", place)
            place = match.end()
            if match.lastgroup != "space":
                tokens.append(_Token(str(match.lastgroup), match.group(), match.start()))
            else:
                tokens.append(_Token("space", " ", match.start()))

    def template(self) -> Template:
        nodes, ended = self._list(0)
        if ended is not None:
            raise self.fault(f"unexpected {{{{{ended.tokens[0].text}}}}}", ended.at)
        return nodes

    def _list(self, depth: int) -> tuple[tuple[Node, ...], _Piece | None]:
        """Nodes up to the end, or up to an `end` or `else`, which is returned with them."""
        if depth > MAX_DEPTH:
            raise self.fault(f"more than {MAX_DEPTH} levels of blocks", self._pieces[self._place - 1].at)
        nodes: list[Node] = []
        while self._place < len(self._pieces):
            piece = self._pieces[self._place]
            self._place += 1
            if piece.text is not None:
                nodes.append(Text(piece.text))
                continue
            tokens = _Tokens(self, piece)
            word = tokens.keyword()
            if word in ("end", "else"):
                piece.tokens = [t for t in piece.tokens if t.kind != "space"]
                return tuple(nodes), piece
            if word in ("if", "range", "with"):
                nodes.append(self._block(word, tokens, piece, depth))
            elif word in ("define", "template", "block", "break", "continue"):
                raise self.fault(f"{{{{{word}}}}} is not supported", piece.at)
            else:
                nodes.append(Action(tokens.pipeline_to_end(self._names), self._line(piece.at)))
        return tuple(nodes), None

    def _block(self, kind: str, tokens: _Tokens, piece: _Piece, depth: int) -> Block:
        self._names.append(set())
        pipeline = tokens.pipeline_to_end(self._names)
        body, ended = self._list(depth + 1)
        otherwise: tuple[Node, ...] = ()
        if ended is not None and ended.tokens[0].text == "else":
            rest = ended.tokens[1:]
            if rest:
                if rest[0].text not in ("if", "with"):
                    raise self.fault("unexpected token after else", rest[0].at)
                again = _Piece(None, rest[1:], ended.at)
                otherwise = (self._block(rest[0].text, _Tokens(self, again), again, depth + 1),)
                self._names.pop()
                return Block(kind, pipeline, body, otherwise, self._line(piece.at))
            otherwise, ended = self._list(depth + 1)
        if ended is None or ended.tokens[0].text != "end":
            raise self.fault(f"{{{{{kind}}}}} without {{{{end}}}}", piece.at)
        self._names.pop()
        return Block(kind, pipeline, body, otherwise, self._line(piece.at))

    def _line(self, at: int) -> int:
        return self._source.count("\n", 0, at) + 1


class _Tokens:
    """The tokens of one action, read from left to right."""

    def __init__(self, parser: _Parser, piece: _Piece) -> None:
        self._parser = parser
        self._at = piece.at
        self._tokens = piece.tokens
        self._place = 0
        self._depth = 0

    def _peek(self, skip: bool = True) -> _Token | None:
        while skip and self._place < len(self._tokens) and self._tokens[self._place].kind == "space":
            self._place += 1
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def _next(self) -> _Token:
        token = self._peek()
        if token is None:
            raise self._parser.fault("unexpected end of action", self._at)
        self._place += 1
        return token

    def keyword(self) -> str:
        token = self._peek()
        words = ("if", "else", "end", "range", "with", "define", "template", "block", "break", "continue")
        if token is not None and token.kind == "word" and token.text in words:
            if token.text not in ("else", "end"):
                self._place += 1
            return token.text
        return ""

    def pipeline_to_end(self, names: list[set[str]]) -> Pipeline:
        pipeline = self._pipeline(names)
        left = self._peek()
        if left is not None:
            raise self._parser.fault(f"unexpected {left.text!r} in action", left.at)
        return pipeline

    def _pipeline(self, names: list[set[str]]) -> Pipeline:
        variables, declares = self._assignment()
        commands = [self._command(names)]
        while (token := self._peek()) is not None and token.text == "|" and token.kind == "sign":
            self._place += 1
            commands.append(self._command(names))
            if isinstance(commands[-1].operands[0], Literal):
                raise self._parser.fault(f"non executable command in pipeline stage {len(commands)}", token.at)
        if declares:
            names[-1].update(variables)
        return Pipeline(variables, declares, tuple(commands))

    def _assignment(self) -> tuple[tuple[str, ...], bool]:
        start, found = self._place, []
        while (token := self._peek()) is not None and token.kind == "variable":
            self._place += 1
            found.append(token.text[1:])
            sign = self._peek()
            if sign is not None and (sign.kind == "declare" or (sign.kind == "sign" and sign.text == "=")):
                self._place += 1
                return tuple(found), sign.kind == "declare"
            if sign is None or sign.text != ",":
                break
            self._place += 1
        self._place = start
        return (), False

    def _command(self, names: list[set[str]]) -> Command:
        operands: list[Operand] = []
        while (token := self._peek()) is not None and not (token.kind == "sign" and token.text in "|)"):
            operands.append(self._operand(names))
        if not operands:
            raise self._parser.fault("missing value for command", self._at)
        return Command(tuple(operands))

    def _fields(self) -> tuple[str, ...]:
        found = []
        while (token := self._peek(skip=False)) is not None and token.kind == "field":
            self._place += 1
            found.append(token.text[1:])
        return tuple(found)

    def _operand(self, names: list[set[str]]) -> Operand:
        token = self._next()
        kind, text = token.kind, token.text
        if kind == "string":
            return Literal(_unquote(text))
        if kind == "char":
            return Literal(ord(_unquote('"' + text[1:-1] + '"')))
        if kind == "number":
            return Literal(_number(text))
        if kind == "variable":
            if not any(text[1:] in scope for scope in names) and text[1:] not in (
                "labels",
                "value",
                "externalLabels",
                "externalURL",
            ):
                raise self._parser.fault(f"undefined variable {text!r}", token.at)
            return Variable(text[1:], self._fields())
        if kind == "field":
            return Dot((text[1:], *self._fields()))
        if kind == "dot":
            return Dot(())
        if kind == "word":
            constants: dict[str, object] = {"true": True, "false": False, "nil": None}
            return Literal(constants[text]) if text in constants else self._function(token)
        if text == "(":
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise self._parser.fault(f"more than {MAX_DEPTH} levels of brackets", token.at)
            inner = self._pipeline(names)
            closing = self._next()
            if closing.text != ")":
                raise self._parser.fault(f"expected ')', got {closing.text!r}", closing.at)
            self._depth -= 1
            return Nested(inner, self._fields())
        raise self._parser.fault(f"unexpected {text!r} in operand", token.at)

    def _function(self, token: _Token) -> Function:
        from posttrain_watchdog.alerting.templates.functions import NAMES

        if token.text not in NAMES:
            raise self._parser.fault(f"function {token.text!r} not defined", token.at)
        return Function(token.text)


def parse(source: str) -> Template:
    """The tree of a template. Raises TemplateError."""
    return _Parser(source).template()
