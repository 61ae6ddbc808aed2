"""Expands a parsed template over one alert. Promises: bounded work and output; a fault is a TemplateError."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from posttrain_watchdog.alerting.templates import parse as tree
from posttrain_watchdog.alerting.templates.functions import FUNCTIONS, MAX_OUTPUT, shown, truth
from posttrain_watchdog.alerting.templates.parse import Template, TemplateError

MAX_STEPS = 10_000
Query = Callable[[str], list[dict[str, Any]]]
"""Evaluates an expression now: samples as {"Labels": {...}, "Value": float}; raises ValueError."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a template sees of an alert."""

    labels: Mapping[str, str]
    value: float
    external_labels: Mapping[str, str] = field(default_factory=dict)
    external_url: str = ""
    query: Query | None = None


class _Frame:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.root = {
            "Labels": context.labels,
            "ExternalLabels": context.external_labels,
            "ExternalURL": context.external_url,
            "Value": context.value,
        }
        self.scopes: list[dict[str, Any]] = [
            {
                "": self.root,
                "labels": context.labels,
                "value": context.value,
                "externalLabels": context.external_labels,
                "externalURL": context.external_url,
            }
        ]
        self.output: list[str] = []
        self.length = 0
        self.steps = 0

    def run(self, nodes: Template, dot: Any) -> None:
        for node in nodes:
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise TemplateError("template takes too many steps")
            if isinstance(node, tree.Text):
                self._write(node.text)
            elif isinstance(node, tree.Action):
                value = self._pipeline(node.pipeline, dot)
                if not node.pipeline.variables:
                    self._write(shown(value))
            else:
                self._block(node, dot)

    def _write(self, text: str) -> None:
        self.length += len(text)
        if self.length > MAX_OUTPUT:
            raise TemplateError(f"template gives more than {MAX_OUTPUT} characters")
        self.output.append(text)

    def _block(self, node: tree.Block, dot: Any) -> None:
        self.scopes.append({})
        try:
            if node.kind == "range":
                self._range(node, dot)
            else:
                value = self._pipeline(node.pipeline, dot)
                if truth(value):
                    self.run(node.body, value if node.kind == "with" else dot)
                else:
                    self.run(node.otherwise, dot)
        finally:
            self.scopes.pop()

    def _range(self, node: tree.Block, dot: Any) -> None:
        bare = tree.Pipeline((), False, node.pipeline.commands)
        value = self._pipeline(bare, dot)
        if isinstance(value, Mapping):
            items: list[tuple[Any, Any]] = sorted(value.items())
        elif isinstance(value, (list, tuple)):
            items = list(enumerate(value))
        elif isinstance(value, int) and not isinstance(value, bool):
            items = [(i, i) for i in range(min(value, MAX_STEPS))]
        elif value is None:
            items = []
        else:
            raise TemplateError(f"range can't iterate over {shown(value)}")
        names = node.pipeline.variables
        for key, each in items:
            self.scopes.append(dict(zip(names, (key, each) if len(names) == 2 else (each,), strict=False)))
            try:
                self.run(node.body, each)
            finally:
                self.scopes.pop()
        if not items:
            self.run(node.otherwise, dot)

    def _pipeline(self, pipeline: tree.Pipeline, dot: Any) -> Any:
        value: Any = None
        for place, command in enumerate(pipeline.commands):
            value = self._command(command, dot, (value,) if place else ())
        for name in pipeline.variables:
            if pipeline.declares:
                self.scopes[-1][name] = value
            else:
                next(s for s in reversed(self.scopes) if name in s)[name] = value
        return value

    def _command(self, command: tree.Command, dot: Any, piped: tuple[Any, ...]) -> Any:
        first, *rest = command.operands
        if first == tree.Literal(None):
            raise TemplateError("nil is not a command")
        if isinstance(first, tree.Function):
            return self._call(first.name, rest, dot, piped)
        if rest or piped:
            raise TemplateError("can't give argument to non-function")
        return self._operand(first, dot)

    def _call(self, name: str, operands: list[tree.Operand], dot: Any, piped: tuple[Any, ...]) -> Any:
        self.steps += 1
        if name in ("and", "or"):
            value: Any = None
            for operand in operands:
                value = self._operand(operand, dot)
                if truth(value) != (name == "and"):
                    return value
            return piped[0] if piped else value
        arguments = [self._operand(o, dot) for o in operands] + list(piped)
        if name == "query":
            if self.context.query is None:
                raise TemplateError("query is not available here")
            try:
                return self.context.query(str(arguments[0]))
            except (ValueError, IndexError) as error:
                raise TemplateError(f"error calling query: {error}") from None
        if name == "externalURL":
            return self.context.external_url
        try:
            return FUNCTIONS[name](*arguments)
        except TemplateError:
            raise
        except TypeError:
            raise TemplateError(f"wrong number or type of args for {name}") from None
        except (ValueError, KeyError, OverflowError, AttributeError) as error:
            raise TemplateError(f"error calling {name}: {error}") from None

    def _operand(self, operand: tree.Operand, dot: Any) -> Any:
        if isinstance(operand, tree.Literal):
            return operand.value
        if isinstance(operand, tree.Function):
            return self._call(operand.name, [], dot, ())
        if isinstance(operand, tree.Nested):
            return self._fields(self._pipeline(operand.pipeline, dot), operand.fields)
        if isinstance(operand, tree.Dot):
            return self._fields(dot, operand.fields)
        scope = next((s for s in reversed(self.scopes) if operand.name in s), None)
        if scope is None:
            raise TemplateError(f"undefined variable ${operand.name}")
        return self._fields(scope[operand.name], operand.fields)

    @staticmethod
    def _fields(value: Any, names: tuple[str, ...]) -> Any:
        for name in names:
            if not isinstance(value, Mapping):
                raise TemplateError(f"can't evaluate field {name} in {shown(value)}")
            # a label that is not there is empty, as Prometheus has it
            value = value.get(name, "")
        return value


def expand(template: Template, context: Context) -> str:
    """The text. Raises TemplateError."""
    frame = _Frame(context)
    frame.run(template, frame.root)
    return "".join(frame.output)
