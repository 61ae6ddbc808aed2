"""Rule files as Prometheus has them: groups of alerting and recording rules.

Promises: a file that Prometheus takes is taken, one that it refuses is refused, with file, group, rule and line;
a set is loaded whole or not at all. Pure but for `load`, which reads the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from posttrain_watchdog.alerting.templates import Template, TemplateError, parse
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.syntax import parse as parse_expression

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
_DURATION = re.compile(r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?\Z")
_FACTORS = (31_536_000.0, 604_800.0, 86_400.0, 3600.0, 60.0, 1.0, 0.001)
_GROUP_KEYS = {"name", "interval", "limit", "rules", "query_offset", "labels"}
_RULE_KEYS = {"alert", "record", "expr", "for", "keep_firing_for", "labels", "annotations"}
ON_MISSING = ("keep", "fire", "resolve")
MAX_RULES = 50_000


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong in a rule file, and where."""

    path: str
    line: int
    message: str
    group: str = ""
    rule: str = ""

    def __str__(self) -> str:
        where = "".join(f"{what} {name!r}: " for what, name in (("group", self.group), ("rule", self.rule)) if name)
        return f"{self.path}:{self.line}: {where}{self.message}"


class RuleError(ValueError):
    """Rule files that cannot be used; `faults` has every one of them."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = list(faults)
        super().__init__("\n".join(str(f) for f in self.faults))


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Durations in seconds; templates are parsed once here."""

    name: str
    expr: str
    alerting: bool
    hold: float = 0.0
    """`for`"""
    keep_firing_for: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    label_templates: Mapping[str, Template] = field(default_factory=dict)
    annotation_templates: Mapping[str, Template] = field(default_factory=dict)
    on_missing: str = "keep"
    """watchdog_on_missing: what to do with an active alert whose series vanished"""
    resolve_expr: str = ""
    """watchdog_resolve_expr: once firing, the alert resolves only where this has a matching series"""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Rules evaluated one after another at the same time."""

    name: str
    path: str
    interval: float | None
    limit: int
    rules: tuple[Rule, ...]
    query_offset: float = 0.0
    """seconds into the past at which the expressions are evaluated (Prometheus >= 2.53)"""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All groups in force."""

    groups: tuple[Group, ...] = ()

    @classmethod
    def load(cls, paths: Iterable[Path]) -> RuleSet:
        """Reads rule files. Raises RuleError with every fault of every file."""
        groups: list[Group] = []
        faults: list[Fault] = []
        for path in paths:
            try:
                text = path.read_text(encoding="utf-8")
            except OSError as error:
                faults.append(Fault(str(path), 1, f"{error.strerror or error}: expected a readable rule file"))
                continue
            except UnicodeDecodeError:
                faults.append(Fault(str(path), 1, "expected YAML text, found bytes that are not UTF-8"))
                continue
            try:
                groups += parse_rules(text, str(path))
            except RuleError as error:
                faults += error.faults
        if faults:
            raise RuleError(faults)
        return cls(tuple(groups))

    def rules(self) -> Iterator[tuple[Group, Rule]]:
        for group in self.groups:
            for rule in group.rules:
                yield group, rule


def duration(text: Any) -> float:
    """Seconds of a duration as rule files write it ("1h30m", "0s", "0"). Raises ValueError."""
    given = str(text)
    if given == "0":
        return 0.0
    match = _DURATION.match(given)
    if not given or match is None or not any(match.groups()):
        raise ValueError(f"not a valid duration string: {given!r}")
    return sum(int(n) * f for n, f in zip(match.groups(), _FACTORS, strict=True) if n)


def parse_rules(text: str, path: str = "<rules>") -> list[Group]:
    """The groups of one file's text. Raises RuleError."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "cannot be read"
        raise RuleError([Fault(path, mark.line + 1 if mark else 1, f"expected YAML: {problem}")]) from None
    except RecursionError:
        raise RuleError([Fault(path, 1, "expected a rule file, found YAML nested too deeply")]) from None
    if root is None:
        return []
    reader = _Reader(path)
    groups = reader.file(root)
    if reader.faults:
        raise RuleError(reader.faults)
    return groups


def _named(node: yaml.Node, *keys: str) -> str:
    """What a mapping calls itself, for faults found before it is read."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value in keys and isinstance(value, yaml.ScalarNode):
                return str(value.value)
    return ""


class _Reader:
    """Walks the YAML nodes, so that every fault has its line."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._group = self._rule = ""
        self._count = 0
        self.faults: list[Fault] = []

    def _fault(self, node: yaml.Node, message: str, offset: int = 0) -> None:
        line = node.start_mark.line + 1 + offset
        self.faults.append(Fault(self._path, line, message, self._group, self._rule))

    def _mapping(self, node: yaml.Node, known: set[str], what: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self._fault(node, f"expected a mapping for {what}")
            return {}
        own = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in {name for name in own if own.count(name) > 1}:
            self._fault(node, f"key {key!r} is given twice in {what}")
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            try:
                yaml.constructor.SafeConstructor().flatten_mapping(node)
            except yaml.YAMLError as error:
                self._fault(node, f"expected YAML: {getattr(error, 'problem', None) or error}")
                return {}
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault(key, f"expected a plain key in {what}")
                continue
            if known and key.value not in known:
                self._fault(key, f"field {key.value!r} is not known in {what}")
            found[key.value] = value
        return found

    def _items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        if not (isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~")):
            self._fault(node, f"expected a list of {what}")
        return []

    def _text(self, node: yaml.Node | None, what: str) -> str:
        if node is None:
            return ""
        if not isinstance(node, yaml.ScalarNode):
            self._fault(node, f"expected text for {what}")
            return ""
        return str(node.value)

    def _seconds(self, node: yaml.Node | None, what: str) -> float:
        if node is None:
            return 0.0
        try:
            return duration(self._text(node, what))
        except ValueError as error:
            self._fault(node, f"{what}: {error}")
            return 0.0

    def file(self, root: yaml.Node) -> list[Group]:
        top = self._mapping(root, {"groups"}, "a rule file")
        groups: list[Group] = []
        seen: set[str] = set()
        for node in self._items(top["groups"], "groups") if "groups" in top else []:
            group = self._read_group(node)
            if group.name in seen:
                self._group = ""
                self._fault(node, f"groupname: {group.name!r} is repeated in the same file")
            seen.add(group.name)
            groups.append(group)
        return groups

    def _read_group(self, node: yaml.Node) -> Group:
        self._group, self._rule = _named(node, "name"), ""
        parts = self._mapping(node, _GROUP_KEYS, "a group")
        name = self._group = self._text(parts.get("name"), "name")
        if not name:
            self._fault(node, "groupname must not be empty")
        limit = 0
        if "limit" in parts:
            text = self._text(parts["limit"], "limit")
            if text.lstrip("-").isdigit():
                limit = int(text)
            else:
                self._fault(parts["limit"], f"limit: expected a number, got {text!r}")
        interval = self._seconds(parts.get("interval"), "interval") or None
        shared = self._labels(parts.get("labels"), "labels", alerting=True)[0]
        offset = self._seconds(parts.get("query_offset"), "query_offset")
        members = self._items(parts["rules"], "rules") if "rules" in parts else []
        self._count += len(members)
        if self._count > MAX_RULES:
            # aliases make a large file of a small one
            self._fault(node, f"more than {MAX_RULES} rules in one file")
            members = []
        rules = [self._read_rule(each, shared) for each in members]
        self._rule = ""
        return Group(name, self._path, interval, limit, tuple(rules), offset)

    def _read_rule(self, node: yaml.Node, shared: Mapping[str, str]) -> Rule:
        self._rule = _named(node, "alert", "record")
        parts = self._mapping(node, _RULE_KEYS, "a rule")
        alert, record = self._text(parts.get("alert"), "alert"), self._text(parts.get("record"), "record")
        self._rule = alert or record
        if bool(alert) == bool(record):
            self._fault(node, "exactly one of 'record' and 'alert' must be set")
        expr = self._text(parts.get("expr"), "expr")
        self._check_expr(parts.get("expr"), expr, node)
        hold = self._seconds(parts.get("for"), "for")
        keep = self._seconds(parts.get("keep_firing_for"), "keep_firing_for")
        labels, label_templates = self._labels(parts.get("labels"), "labels", alerting=bool(alert))
        notes, note_templates = self._labels(parts.get("annotations"), "annotations", alerting=True)
        if record:
            for key in ("for", "keep_firing_for", "annotations"):
                if key in parts:
                    self._fault(parts[key], f"invalid field {key!r} in recording rule")
            if not _METRIC.match(record):
                self._fault(parts["record"], f"invalid recording rule name: {record!r}")
        on_missing = notes.get("watchdog_on_missing", "keep")
        if on_missing not in ON_MISSING:
            self._fault(node, f"watchdog_on_missing: expected one of {', '.join(ON_MISSING)}, got {on_missing!r}")
        resolve = notes.get("watchdog_resolve_expr", "")
        if resolve:
            self._check_expr(parts["annotations"], resolve, node)
        return Rule(
            name=alert or record,
            expr=expr,
            alerting=bool(alert),
            hold=hold,
            keep_firing_for=keep,
            labels={**shared, **labels},
            annotations=notes,
            label_templates=label_templates,
            annotation_templates=note_templates,
            on_missing=on_missing,
            resolve_expr=resolve,
            line=node.start_mark.line + 1,
        )

    def _check_expr(self, at: yaml.Node | None, expr: str, node: yaml.Node) -> None:
        if not expr.strip():
            self._fault(at or node, "field 'expr' must be set in rule")
            return
        try:
            parse_expression(expr)
        except PromQLError as error:
            block = isinstance(at, yaml.ScalarNode) and at.style in ("|", ">")
            offset = (error.line or 1) - 1 + (1 if block else 0)
            self._fault(at or node, f"could not parse expression: {error}", offset)

    def _labels(
        self, node: yaml.Node | None, what: str, *, alerting: bool
    ) -> tuple[dict[str, str], dict[str, Template]]:
        texts: dict[str, str] = {}
        templates: dict[str, Template] = {}
        for name, value in (self._mapping(node, set(), what) if node is not None else {}).items():
            text = texts[name] = self._text(value, f"{what}.{name}")
            if not _LABEL.match(name) or (what == "labels" and name == "__name__"):
                self._fault(value, f"invalid {what[:-1]} name: {name!r}")
            if not alerting or name.startswith("watchdog_"):
                continue
            try:
                templates[name] = parse(text)
            except TemplateError as error:
                self._fault(value, f"{what[:-1]} {name!r}: template: {error}")
        return texts, templates
