"""Rules in force: their prepared expressions, their alerts, their health; and what the data says of an absent alert.

Promises: a selector is resolved once per rule; the questions behind "vanished or false?" (evidence.py) are asked only
where an active alert left its rule's result. The time is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from posttrain_watchdog.alerting.evidence import always_known, made_labels, opened
from posttrain_watchdog.alerting.rules import Group, Rule, RuleSet
from posttrain_watchdog.model import Alert, LabelPairs, Metric
from posttrain_watchdog.promql.engine import Engine, Query
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.values import Scalar, Value, Vector

RuleKey = tuple[str, str, LabelPairs, bool, int]
"""Group, rule, labels, alerting, and which of those that share these: what makes a rule the same after a reload.

As Prometheus (Group.CopyState) the expression is no part of it: an alert outlives the correction of its limit.
"""


@dataclass(slots=True)
class Standing:
    """One rule in force."""

    rule: Rule
    query: Query
    judged: Query
    """the expression without its filters"""
    known: bool
    """whether the condition can be judged without data"""
    made: frozenset[str]
    resolve: Query | None
    active: dict[LabelPairs, Alert] = field(default_factory=dict)
    health: str = "unknown"
    error: str = ""
    evaluated: float = 0.0
    seconds: float = 0.0

    @classmethod
    def of(cls, rule: Rule, engine: Engine) -> Standing:
        query = engine.prepare(rule.expr)
        judged = Query(engine, rule.expr, opened(query.tree))
        resolve = engine.prepare(rule.resolve_expr) if rule.resolve_expr else None
        return cls(rule, query, judged, always_known(query.tree), made_labels(query.tree), resolve)

    def result_labels(self, alert: Alert) -> dict[str, str]:
        """The labels that came from the rule's result, without those that the rule itself adds."""
        return {k: v for k, v in alert.labels.items() if k != "alertname" and k not in self.rule.labels}


@dataclass(slots=True)
class StandingGroup:
    """A group in force."""

    group: Group
    rules: list[Standing]
    due: float = -math.inf
    evaluated: float = 0.0
    seconds: float = 0.0

    def take_turn(self, now: float, interval: float) -> bool:
        """Whether it is this group's turn; a tick a little early counts, or a 15 s group would wait for 30."""
        if now < self.due - min(1.0, interval / 10):
            return False
        ahead = self.due + interval
        self.due = ahead if ahead > now else now + interval
        self.evaluated = now
        return True


def writer(group: Group, rule: Rule) -> str:
    """Under which name the samples of a rule are written: what it no longer writes ends at once."""
    return f"{'alerts' if rule.alerting else 'records'};{group.path};{group.name};{rule.name};{rule.line}"


def keyed(groups: list[StandingGroup]) -> Iterator[tuple[RuleKey, StandingGroup, Standing]]:
    """Every rule with what identifies it over reloads and restarts."""
    counts: dict[tuple[str, str, LabelPairs, bool], int] = {}
    for group in groups:
        for each in group.rules:
            rule = each.rule
            base = (group.group.name, rule.name, tuple(sorted(rule.labels.items())), rule.alerting)
            counts[base] = counts.get(base, -1) + 1
            yield (*base, counts[base]), group, each


def stand(rules: RuleSet, engine: Engine) -> list[StandingGroup]:
    return [StandingGroup(group, [Standing.of(rule, engine) for rule in group.rules]) for group in rules.groups]


def vector(value: Value) -> list[tuple[Metric, float]]:
    """The samples of a rule's result. Raises PromQLError for a string or a range."""
    if isinstance(value, Vector):
        return value.samples
    if isinstance(value, Scalar):
        return [(Metric(""), value.value)]
    raise PromQLError("rule result is not a vector or scalar")


class Evidence:
    """What the data says of an alert that left its rule's result."""

    def __init__(self, standing: Standing, now: float) -> None:
        self._standing = standing
        self._now = now
        self._found: dict[LabelPairs, float] | None = None
        self._resolving: list[tuple[dict[str, str], float]] | None = None

    def _identity(self, labels: dict[str, str]) -> LabelPairs:
        return tuple(sorted((k, v) for k, v in labels.items() if k not in self._standing.made))

    def _judged(self, alert: Alert) -> float | None:
        """The value that was judged and found well, None where nothing was."""
        if self._found is None:
            self._found = {}
            left_out = {"alertname", *self._standing.rule.labels}
            for metric, value in vector(self._standing.judged.instant(self._now)):
                own = {k: v for k, v in metric.labels if k not in left_out}
                self._found.setdefault(self._identity(own), value)
        return self._found.get(self._identity(self._standing.result_labels(alert)))

    def vanished(self, alert: Alert) -> bool:
        try:
            return not self._standing.known and self._judged(alert) is None
        except PromQLError:
            # without its filters the expression cannot be evaluated (two series become one): as Prometheus then
            return False

    def recovered(self, alert: Alert) -> float | None:
        """The value that resolves the alert; None keeps it (hysteresis)."""
        try:
            judged = self._judged(alert)
        except PromQLError:
            judged = None
        if self._standing.resolve is None:
            return math.nan if judged is None else judged
        if self._resolving is None:
            self._resolving = [(dict(m.labels), v) for m, v in vector(self._standing.resolve.instant(self._now))]
        identity = self._standing.result_labels(alert)
        for labels, value in self._resolving:
            if all(identity.get(k) == v for k, v in labels.items()):
                return value
        return None
