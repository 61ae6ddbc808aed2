"""Evaluates rule groups over the store: recording rules write series, alerting rules live their life cycle.

Promises: one rule that fails is counted and named, the others go on; the state of alerts survives a reload of the
rules and, through `dump` and `restore`, a restart of the daemon. The time is an argument.

"Vanished" against "false": when an active alert leaves the rule's result, the selectors of its expression are
asked. If any of them still gives a series whose labels agree with the alert's, there is data and the condition is
false: the alert resolves. If none does, the data vanished (`watchdog_on_missing` decides).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from posttrain_watchdog.alerting.lifecycle import Instance, Surroundings, Transition, advance
from posttrain_watchdog.alerting.rules import Group, Rule, RuleSet
from posttrain_watchdog.alerting.templates import Context, Template, TemplateError, expand
from posttrain_watchdog.model import Alert, LabelPairs, Metric
from posttrain_watchdog.promql.engine import Engine, Query
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.inspect import selectors
from posttrain_watchdog.promql.values import Scalar, Value, Vector
from posttrain_watchdog.series.store import Store

_VALUES = {math.inf: "+Inf", -math.inf: "-Inf"}


@dataclass(slots=True)
class _Standing:
    """One rule in force: its prepared expressions, its alerts, its health."""

    rule: Rule
    query: Query
    resolve: Query | None
    selectors: list[Query]
    active: dict[LabelPairs, Alert] = field(default_factory=dict)
    health: str = "unknown"
    error: str = ""
    evaluated: float = 0.0


@dataclass(slots=True)
class _StandingGroup:
    group: Group
    rules: list[_Standing]
    due: float = -math.inf
    evaluated: float = 0.0


class Evaluator:
    """All rules in force and their alerts."""

    def __init__(
        self,
        rules: RuleSet,
        engine: Engine,
        store: Store,
        *,
        interval: float = 0.0,
        external_labels: Mapping[str, str] | None = None,
        external_url: str = "",
        vanishing_resolves: bool = False,
    ) -> None:
        """`interval` is how often groups without one of their own are evaluated; 0 means at every call.

        With `vanishing_resolves` a series that vanishes is a recovery, as Prometheus has it: for rule unit tests.
        """
        self._vanishing_resolves = vanishing_resolves
        self._engine = engine
        self._store = store
        self._interval = interval
        self._external_labels = dict(external_labels or {})
        self._external_url = external_url
        self._groups: list[_StandingGroup] = []
        self.failures: dict[str, int] = {}
        """evaluations that failed, by group/rule"""
        self.replace(rules)

    def replace(self, rules: RuleSet) -> None:
        """Puts another set in force; alerts of rules that stay keep their state."""
        kept = {(g.group.name, s.rule.name, s.rule.expr): s.active for g in self._groups for s in g.rules}
        standing = []
        for group in rules.groups:
            members = []
            for rule in group.rules:
                one = self._stand(rule)
                one.active = kept.get((group.name, rule.name, rule.expr), {})
                members.append(one)
            standing.append(_StandingGroup(group, members))
        self._groups = standing

    @property
    def rules_loaded(self) -> int:
        return sum(len(g.rules) for g in self._groups)

    def _stand(self, rule: Rule) -> _Standing:
        asked = [
            self._engine.prepare(f"{name or ''}{{{','.join(str(m) for m in matchers)}}}")
            for name, matchers in selectors(rule.expr)
            if name is not None or matchers
        ]
        resolve = self._engine.prepare(rule.resolve_expr) if rule.resolve_expr else None
        return _Standing(rule, self._engine.prepare(rule.expr), resolve, asked)

    def evaluate(self, now: float, *, run_finished: bool = False) -> list[Transition]:
        """Evaluates the groups that are due; returns what changed."""
        changes: list[Transition] = []
        for group in self._groups:
            interval = group.group.interval if group.group.interval is not None else self._interval
            if now < group.due - 1e-6:
                continue
            group.due = now + interval if interval else now
            group.evaluated = now
            for standing in group.rules:
                changes += self._evaluate_rule(group.group, standing, now, run_finished)
        return changes

    def _evaluate_rule(self, group: Group, standing: _Standing, now: float, run_finished: bool) -> list[Transition]:
        standing.evaluated = now
        try:
            samples = _vector(standing.query.instant(now))
            if standing.rule.alerting:
                changes = self._alert(group, standing, samples, now, run_finished)
            else:
                changes = []
                self._record(group, standing.rule, samples, now)
        except (PromQLError, ValueError) as error:
            standing.health, standing.error = "err", str(error)
            name = f"{group.name}/{standing.rule.name}"
            self.failures[name] = self.failures.get(name, 0) + 1
            return []
        standing.health, standing.error = "ok", ""
        return changes

    def _record(self, group: Group, rule: Rule, samples: Sequence[tuple[Metric, float]], now: float) -> None:
        values: dict[Metric, float] = {}
        for metric, value in samples:
            written = Metric(rule.name, {**dict(metric.labels), **rule.labels})
            if written in values:
                raise ValueError("vector contains metrics with the same labelset after applying rule labels")
            values[written] = value
        if group.limit > 0 and len(values) > group.limit:
            raise ValueError(f"exceeded limit of {group.limit} with {len(values)} series")
        self._store.append_values(now, values, writer=f"{group.path};{group.name};{rule.name};{rule.line}")

    def _alert(
        self,
        group: Group,
        standing: _Standing,
        samples: Sequence[tuple[Metric, float]],
        now: float,
        run_finished: bool,
    ) -> list[Transition]:
        rule = standing.rule
        instances: dict[LabelPairs, Instance] = {}
        for metric, value in samples:
            instance = self._instance(rule, dict(metric.labels), value, now)
            if instance.key in instances:
                raise ValueError("vector contains metrics with the same labelset after applying alert labels")
            instances[instance.key] = instance
        if group.limit > 0 and len(instances) > group.limit:
            standing.active.clear()
            raise ValueError(f"exceeded limit of {group.limit} with {len(instances)} alerts")
        evidence = _Evidence(standing, now)
        around = Surroundings(evidence.vanished, evidence.recovered, run_finished or self._vanishing_resolves)
        changes = advance(standing.active, rule, instances.values(), now, around)
        for change in changes:
            change.alert.rule = f"{group.name}/{rule.name}"
            if change.state == "resolved":
                again = self._instance(rule, _result_labels(change.alert, rule), change.alert.value, now)
                change.alert.annotations = dict(again.annotations)
        self._write_state(group, standing, now)
        return changes

    def _instance(self, rule: Rule, labels: dict[str, str], value: float, now: float) -> Instance:
        context = Context(labels, value, self._external_labels, self._external_url, lambda e: self._query(e, now))
        expanded = {**labels, **{k: _expand(t, context) for k, t in rule.label_templates.items()}}
        expanded["alertname"] = rule.name
        notes = {k: v for k, v in rule.annotations.items() if k.startswith("watchdog_")}
        notes.update({k: _expand(t, context) for k, t in rule.annotation_templates.items()})
        return Instance({k: v for k, v in expanded.items() if v}, notes, value)

    def _query(self, expression: str, now: float) -> list[dict[str, Any]]:
        found = _vector(self._engine.instant(expression, now))
        return [{"Labels": {"__name__": m.name, **dict(m.labels)}, "Value": v} for m, v in found]

    def _write_state(self, group: Group, standing: _Standing, now: float) -> None:
        values: dict[Metric, float] = {}
        for alert in standing.active.values():
            if alert.state != "inactive":
                values[Metric("ALERTS", {**alert.labels, "alertstate": alert.state})] = 1.0
                values[Metric("ALERTS_FOR_STATE", alert.labels)] = alert.active_at
        writer = f"alerts;{group.path};{group.name};{standing.rule.name};{standing.rule.line}"
        self._store.append_values(now, values, writer=writer)

    def alerts(self) -> list[Alert]:
        """All alerts that are pending or firing, and those resolved in the last 15 minutes."""
        return [a for g in self._groups for s in g.rules for a in s.active.values()]

    def alerts_payload(self) -> list[dict[str, Any]]:
        """As Prometheus' /api/v1/alerts lists them."""
        return [_alert_json(a) for a in self.alerts() if a.state != "inactive"]

    def rules_payload(self) -> dict[str, Any]:
        """As Prometheus' /api/v1/rules has it."""
        return {"groups": [self._group_json(g) for g in self._groups]}

    def _group_json(self, group: _StandingGroup) -> dict[str, Any]:
        return {
            "name": group.group.name,
            "file": group.group.path,
            "interval": group.group.interval or self._interval,
            "limit": group.group.limit,
            "lastEvaluation": _rfc3339(group.evaluated),
            "evaluationTime": 0.0,
            "rules": [_rule_json(s) for s in group.rules],
        }

    def dump(self) -> list[dict[str, Any]]:
        """The state of every alert, to be kept over a restart."""
        return [
            {
                "group": g.group.name,
                "rule": s.rule.name,
                "expr": s.rule.expr,
                "labels": a.labels,
                "annotations": a.annotations,
                "state": a.state,
                "active_at": a.active_at,
                "value": a.value,
                "fired_at": a.fired_at,
                "resolved_at": a.resolved_at,
                "last_seen": a.last_seen,
                "keep_firing_since": a.keep_firing_since,
            }
            for g in self._groups
            for s in g.rules
            for a in s.active.values()
        ]

    def restore(self, kept: Sequence[Mapping[str, Any]]) -> None:
        """Takes up alerts where a former process left them, of the rules that are still in force."""
        by_rule = {(g.group.name, s.rule.name, s.rule.expr): (g, s) for g in self._groups for s in g.rules}
        for each in kept:
            found = by_rule.get((each["group"], each["rule"], each["expr"]))
            if found is None:
                continue
            group, standing = found
            alert = Alert(
                name=each["rule"],
                labels=dict(each["labels"]),
                annotations=dict(each["annotations"]),
                state=each["state"],
                active_at=each["active_at"],
                value=each["value"] if each["value"] is not None else math.nan,
                fired_at=each["fired_at"],
                resolved_at=each["resolved_at"],
                last_seen=each["last_seen"],
                keep_firing_since=each["keep_firing_since"],
                rule=f"{group.group.name}/{each['rule']}",
            )
            standing.active[tuple(sorted(alert.labels.items()))] = alert


class _Evidence:
    """What the selectors of a rule say of an alert that left its result."""

    def __init__(self, standing: _Standing, now: float) -> None:
        self._standing = standing
        self._now = now
        self._samples: list[tuple[dict[str, str], float]] | None = None

    def _agreeing(self, alert: Alert, samples: Sequence[tuple[dict[str, str], float]]) -> list[float]:
        identity = _result_labels(alert, self._standing.rule)
        found = []
        for labels, value in samples:
            shared = identity.keys() & labels.keys()
            if (shared or not identity) and all(identity[k] == labels[k] for k in shared):
                found.append(value)
        return found

    def _look(self) -> list[tuple[dict[str, str], float]]:
        if self._samples is None:
            self._samples = [
                (dict(m.labels), v) for query in self._standing.selectors for m, v in _vector(query.instant(self._now))
            ]
        return self._samples

    def vanished(self, alert: Alert) -> bool:
        return bool(self._standing.selectors) and not self._agreeing(alert, self._look())

    def recovered(self, alert: Alert) -> float | None:
        if self._standing.resolve is not None:
            asked = [(dict(m.labels), v) for m, v in _vector(self._standing.resolve.instant(self._now))]
            return next(iter(self._agreeing(alert, asked)), None)
        return next(iter(self._agreeing(alert, self._look())), math.nan)


def _result_labels(alert: Alert, rule: Rule) -> dict[str, str]:
    """The labels that came from the rule's result, without those that the rule itself adds."""
    return {k: v for k, v in alert.labels.items() if k != "alertname" and k not in rule.labels}


def _vector(value: Value) -> list[tuple[Metric, float]]:
    if isinstance(value, Vector):
        return value.samples
    if isinstance(value, Scalar):
        return [(Metric(""), value.value)]
    raise PromQLError("rule result is not a vector or scalar")


def _expand(template: Template, context: Context) -> str:
    try:
        return expand(template, context)
    except TemplateError as error:
        return f"<error expanding template: {error}>"


def _rfc3339(seconds: float) -> str:
    try:
        moment = datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return "0001-01-01T00:00:00Z"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: float) -> str:
    return "NaN" if math.isnan(value) else _VALUES.get(value, f"{value:e}")


def _alert_json(alert: Alert) -> dict[str, Any]:
    return {
        "labels": alert.labels,
        "annotations": alert.annotations,
        "state": alert.state,
        "activeAt": _rfc3339(alert.active_at),
        "value": _text(alert.value),
    }


def _rule_json(standing: _Standing) -> dict[str, Any]:
    rule = standing.rule
    common = {
        "name": rule.name,
        "query": rule.expr,
        "labels": dict(rule.labels),
        "health": standing.health,
        "lastError": standing.error,
        "lastEvaluation": _rfc3339(standing.evaluated),
        "evaluationTime": 0.0,
    }
    if not rule.alerting:
        return {**common, "type": "recording"}
    alerts = [a for a in standing.active.values() if a.state != "inactive"]
    states = {a.state for a in alerts}
    state = "firing" if "firing" in states else "pending" if states else "inactive"
    return {
        **common,
        "type": "alerting",
        "state": state,
        "duration": rule.hold,
        "keepFiringFor": rule.keep_firing_for,
        "annotations": dict(rule.annotations),
        "alerts": [_alert_json(a) for a in alerts],
    }
