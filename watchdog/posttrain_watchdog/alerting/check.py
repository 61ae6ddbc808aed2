"""`rules check`: what promtool check rules says, and names that nothing here exposes.

Promises: a faulty file gives errors with file and line; a rule that names an unknown metric or label gets a warning
with the nearest that is known, because such a rule never fires and never says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from posttrain_watchdog.alerting.rules import Rule, RuleError, RuleSet
from posttrain_watchdog.promql import nodes
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.inspect import selectors
from posttrain_watchdog.promql.notation import unquote
from posttrain_watchdog.promql.syntax import parse
from posttrain_watchdog.vocabulary import CAUSES, METRICS, Spec, window_specs

_ALWAYS = frozenset({"run", "source", "instance", "job", "le"})
_QUERY = re.compile(r"""\bquery\s+("(?:[^"\\]|\\.)*"|`[^`]*`)""")
_OWN = {
    "ALERTS": {"alertname", "alertstate", "severity", "cause"},
    "ALERTS_FOR_STATE": {"alertname", "severity", "cause"},
}


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One thing to say of a rule file. Labels that a run's own configuration adds are warned of, too: check them."""

    severity: str
    """error or warning"""
    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.message}"


def known_names() -> dict[str, Spec]:
    """Every name that the daemon can expose, step windows and histogram parts included."""
    known: dict[str, Spec] = {}
    for spec in METRICS.values():
        known[spec.name] = spec
        for window in window_specs(spec):
            known[window.name] = window
        if spec.kind == "histogram":
            known.update({spec.name + part: spec for part in ("_bucket", "_sum", "_count")})
    return known


def check(paths: Sequence[Path]) -> tuple[list[RuleFinding], int]:
    """(findings, rules read) of rule files."""
    findings: list[RuleFinding] = []
    count = 0
    recorded: set[str] = set()
    sets: list[RuleSet] = []
    for path in paths:
        try:
            rules = RuleSet.load([path])
        except RuleError as error:
            for fault in error.faults:
                where = "".join(f"{w} {n!r}: " for w, n in (("group", fault.group), ("rule", fault.rule)) if n)
                findings.append(RuleFinding("error", fault.path, fault.line, where + fault.message))
            continue
        sets.append(rules)
        recorded |= {rule.name for _, rule in rules.rules() if not rule.alerting}
    known = known_names()
    for rules in sets:
        for group, rule in rules.rules():
            count += 1
            findings += _names(group.path, rule, known, recorded)
    findings += _duplicates(sets)
    return findings, count


def _expressions(rule: Rule) -> Iterator[tuple[str, nodes.Node]]:
    """(where, tree) of every expression in a rule: its own, the resolving one, those that templates ask."""
    yield "expr", parse(rule.expr)
    if rule.resolve_expr:
        yield "watchdog_resolve_expr", parse(rule.resolve_expr)
    for name, text in (*rule.labels.items(), *rule.annotations.items()):
        for asked in _QUERY.findall(text):
            with suppress(PromQLError):  # put together by printf, which only the evaluation can do
                yield name, parse(unquote(asked))


def _names(path: str, rule: Rule, known: dict[str, Spec], recorded: set[str]) -> Iterator[RuleFinding]:
    said: set[str] = set()
    for where, tree in _expressions(rule):
        inside = "" if where == "expr" else f"{where}: "
        for text in (*_selectors(tree, known, recorded), *_groupings(tree, known, recorded)):
            if text not in said:
                said.add(text)
                yield RuleFinding("warning", path, rule.line, f"rule {rule.name!r}: {inside}{text}")


def _selectors(tree: nodes.Node, known: dict[str, Spec], recorded: set[str]) -> Iterator[str]:
    for name, matchers in selectors(tree):
        if name is None or name in recorded or name in _OWN:
            continue
        if name not in known:
            yield f"unknown metric {name!r}{_hint(name, known, 0.6)}"
            continue
        labels = set(known[name].labels)
        for matcher in matchers:
            if matcher.name not in labels | _ALWAYS:
                hint = _hint(matcher.name, labels, 0.5) or f"; it has {', '.join(sorted(labels)) or 'none'}"
                yield f"metric {name!r} has no label {matcher.name!r}{hint}"
            elif matcher.name == "cause" and matcher.operator == "=" and matcher.value not in CAUSES:
                yield f"unknown cause {matcher.value!r}{_hint(matcher.value, CAUSES, 0.6)}"


def _groupings(tree: nodes.Node, known: dict[str, Spec], recorded: set[str]) -> Iterator[str]:
    """Labels of by, on and group_left that no series of the expression can have."""
    names = [name for name, _ in selectors(tree)]
    if any(name is None or name in recorded or name not in known for name in names):
        return
    available = _ALWAYS.union(*(known[name].labels for name in names if name is not None))
    used: list[str] = []
    for node in nodes.walk(tree):
        if isinstance(node, nodes.Call) and node.function in ("label_replace", "label_join"):
            return
        if isinstance(node, nodes.Aggregation):
            used += () if node.without else node.labels
            if isinstance(node.parameter, nodes.Text):
                available = available | {node.parameter.value}
        elif isinstance(node, nodes.Binary):
            used += (*(node.matching.labels if node.matching.on else ()), *node.matching.include)
    for label in dict.fromkeys(used):
        if label not in available:
            yield f"no series of the expression has the label {label!r}{_hint(label, available, 0.6)}"


def _hint(name: str, known: Iterable[str], cutoff: float) -> str:
    near = get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]!r}?" if near else ""


def _duplicates(sets: Iterable[RuleSet]) -> Iterator[RuleFinding]:
    """Rules of the same name and labels in different places, which would write the same series."""
    seen: dict[tuple[str, bool, tuple[tuple[str, str], ...]], str] = {}
    for rules in sets:
        for group, rule in rules.rules():
            key = (rule.name, rule.alerting, tuple(sorted(rule.labels.items())))
            first = seen.get(key)
            seen.setdefault(key, f"{group.path}:{rule.line}")
            if first is not None:
                text = f"rule {rule.name!r} with the same labels stands at {first} too: might cause inconsistency"
                yield RuleFinding("warning", group.path, rule.line, text)
