"""`rules check`: what promtool check rules says, and names that nothing here exposes.

Promises: a faulty file gives errors with file and line; a rule that names an unknown metric or label gets a warning
with the nearest that is known, because such a rule never fires and never says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from posttrain_watchdog.alerting.rules import Rule, RuleError, RuleSet
from posttrain_watchdog.promql.inspect import selectors
from posttrain_watchdog.vocabulary import METRICS, Spec, window_specs

_ALWAYS = {"run", "source", "instance", "job", "le"}
_OWN = {
    "ALERTS": {"alertname", "alertstate", "severity", "cause"},
    "ALERTS_FOR_STATE": {"alertname", "severity", "cause"},
}


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One thing to say of a rule file."""

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


def _names(path: str, rule: Rule, known: dict[str, Spec], recorded: set[str]) -> Iterator[RuleFinding]:
    for name, matchers in selectors(rule.expr):
        if name is None or name in recorded:
            continue
        if name not in known and name not in _OWN:
            near = get_close_matches(name, known, n=1, cutoff=0.6)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield RuleFinding("warning", path, rule.line, f"rule {rule.name!r}: unknown metric {name!r}{hint}")
            continue
        labels = _OWN.get(name) or set(known[name].labels)
        for matcher in matchers:
            if matcher.name not in labels | _ALWAYS and name not in _OWN:
                near = get_close_matches(matcher.name, labels, n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(sorted(labels)) or 'none'}"
                text = f"rule {rule.name!r}: metric {name!r} has no label {matcher.name!r}{hint}"
                yield RuleFinding("warning", path, rule.line, text)


def _duplicates(sets: Iterable[RuleSet]) -> Iterator[RuleFinding]:
    """Rules of the same name and labels in different places, which would write the same series."""
    seen: dict[tuple[str, bool, tuple[tuple[str, str], ...]], str] = {}
    for rules in sets:
        for group, rule in rules.rules():
            key = (rule.name, rule.alerting, tuple(sorted(rule.labels.items())))
            first = seen.setdefault(key, f"{group.path}:{rule.line}")
            if first != f"{group.path}:{rule.line}":
                text = f"rule {rule.name!r} with the same labels stands at {first} too: might cause inconsistency"
                yield RuleFinding("warning", group.path, rule.line, text)
