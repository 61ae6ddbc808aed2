"""Evaluates rule groups over the store: recording rules write series, alerting rules live their life cycle.

Promises: one rule that fails is counted and named, the others go on; the state of alerts survives a reload of the
rules and, through `dump` and `restore` (kept.py), a restart of the daemon; the alerts of a rule that is taken away
resolve. The time is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from posttrain_watchdog import clock
from posttrain_watchdog.alerting import views
from posttrain_watchdog.alerting.lifecycle import RESOLVED_RETENTION, Asked, Instance, Surroundings, Transition, advance
from posttrain_watchdog.alerting.rules import Group, Rule, RuleSet
from posttrain_watchdog.alerting.standing import Evidence, Standing, StandingGroup, keyed, stand, vector, writer
from posttrain_watchdog.alerting.templates import Context, Template, TemplateError, expand
from posttrain_watchdog.model import Alert, LabelPairs, Metric
from posttrain_watchdog.promql.engine import Engine
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.series.store import Store

RESTART_GRACE = 300.0
"""Seconds after a restart in which an alert waits for its data to come back (Prometheus' lookback)."""
_AS_PROMETHEUS = Surroundings(lambda alert: False, lambda alert: math.nan)


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
        as_prometheus: bool = False,
        elapsed: clock.Clock = clock.elapsed,
    ) -> None:
        """`interval` is how often groups without one of their own are evaluated; 0 means at every call.

        `as_prometheus` leaves out what goes beyond Prometheus (`watchdog_` annotations, vanished series), as rule
        unit tests must to agree with promtool.
        """
        self._engine = engine
        self._store = store
        self._interval = interval
        self._external_labels = dict(external_labels or {})
        self._external_url = external_url
        self._as_prometheus = as_prometheus
        self._elapsed = elapsed
        self._groups: list[StandingGroup] = []
        self._orphans: list[Alert] = []
        self._ended: list[str] = []
        self._restored = False
        self._grace_until = -math.inf
        self.failures: dict[str, int] = {}
        """evaluations that failed, by group/rule"""
        self.replace(rules)

    @property
    def groups(self) -> Sequence[StandingGroup]:
        """The groups in force, for those who show or keep them."""
        return self._groups

    @property
    def interval(self) -> float:
        return self._interval

    @property
    def rules_loaded(self) -> int:
        return sum(len(g.rules) for g in self._groups)

    def replace(self, rules: RuleSet) -> None:
        """Puts another set in force; alerts of rules that stay keep their state, those of rules that go resolve.

        Raises PromQLError, with the old set still in force.
        """
        groups = stand(rules, self._engine)
        before = {key: (group, standing) for key, group, standing in keyed(self._groups)}
        writers = {writer(g.group, s.rule) for g in self._groups for s in g.rules}
        timing = {(g.group.path, g.group.name, g.group.interval): g.due for g in self._groups}
        for key, _, standing in keyed(groups):
            found = before.pop(key, None)
            if found is not None:
                standing.active = found[1].active
                standing.health, standing.error = found[1].health, found[1].error
                standing.evaluated, standing.seconds = found[1].evaluated, found[1].seconds
        for group in groups:
            group.due = timing.get((group.group.path, group.group.name, group.group.interval), -math.inf)
        self._orphans += [a for _, s in before.values() for a in s.active.values() if a.state == "firing"]
        self._ended += sorted(writers - {writer(g.group, s.rule) for g in groups for s in g.rules})
        self._groups = groups

    def evaluate(
        self, now: float, *, run_finished: bool = False, finished_runs: Collection[str] = ()
    ) -> list[Transition]:
        """Evaluates the groups that are due; returns what changed.

        `run_finished`: every run ended as it should; `finished_runs`: the names of those that did. What vanishes
        then is no surprise: the alerts of a finished run (label `run`) resolve.
        """

        def finished(alert: Alert) -> bool:
            return run_finished or alert.labels.get("run", "") in finished_runs

        if self._restored:
            self._restored, self._grace_until = False, now + RESTART_GRACE
        changes = self._let_go(now)
        for group in self._groups:
            interval = self._interval if group.group.interval is None else group.group.interval
            if not group.take_turn(now, interval):
                continue
            began = self._elapsed()
            for standing in group.rules:
                changes += self._evaluate_rule(group.group, standing, now, finished)
            group.seconds = self._elapsed() - began
        return changes

    def _let_go(self, now: float) -> list[Transition]:
        """Ends the series of rules that are no longer in force, and resolves their alerts."""
        for each in self._ended:
            self._store.end_writer(now, each)
        self._ended.clear()
        changes = []
        for alert in self._orphans:
            if alert.state == "firing":
                alert.state, alert.resolved_at = "inactive", now
                changes.append(Transition(alert, "resolved"))
        self._orphans = [a for a in self._orphans if now - (a.resolved_at or now) <= RESOLVED_RETENTION]
        return changes

    def _evaluate_rule(self, group: Group, standing: Standing, now: float, finished: Asked) -> list[Transition]:
        standing.evaluated = now
        began = self._elapsed()
        try:
            samples = vector(standing.query.instant(now - group.query_offset))
            if standing.rule.alerting:
                changes = self._alert(group, standing, samples, now, finished)
            else:
                changes = []
                self._record(group, standing.rule, samples, now)
        except (PromQLError, ValueError) as error:
            standing.health, standing.error = "err", str(error)
            name = f"{group.name}/{standing.rule.name}"
            self.failures[name] = self.failures.get(name, 0) + 1
            return []
        finally:
            standing.seconds = self._elapsed() - began
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
        self._store.append_values(now, values, writer=writer(group, rule))

    def _alert(
        self,
        group: Group,
        standing: Standing,
        samples: Sequence[tuple[Metric, float]],
        now: float,
        finished: Asked,
    ) -> list[Transition]:
        rule = standing.rule
        instances: dict[LabelPairs, Instance] = {}
        for metric, value in samples:
            instance = self._instance(rule, metric, value, now)
            if instance.key in instances:
                raise ValueError("vector contains metrics with the same labelset after applying alert labels")
            instances[instance.key] = instance
        if group.limit > 0 and len(instances) > group.limit:
            standing.active.clear()
            raise ValueError(f"exceeded limit of {group.limit} with {len(instances)} alerts")
        around = _AS_PROMETHEUS
        if not self._as_prometheus:
            evidence = Evidence(standing, now - group.query_offset)
            waiting = now < self._grace_until
            around = Surroundings(
                evidence.vanished, evidence.recovered, finished, lambda alert: waiting and alert.last_seen is None
            )
        changes = advance(standing.active, rule, instances.values(), now, around)
        for change in changes:
            change.alert.rule = f"{group.name}/{rule.name}"
            if change.state == "resolved":
                again = self._instance(rule, Metric("", standing.result_labels(change.alert)), change.alert.value, now)
                change.alert.annotations = dict(again.annotations)
        self._write_state(group, standing, now)
        return changes

    def _instance(self, rule: Rule, metric: Metric, value: float, now: float) -> Instance:
        labels = dict(metric.labels)
        # templates see the name of the metric among the labels, the alert does not have it
        seen = {"__name__": metric.name, **labels} if metric.name else labels
        context = Context(seen, value, self._external_labels, self._external_url, lambda e: self._query(e, now))
        expanded = {**labels, **{k: _expand(t, context) for k, t in rule.label_templates.items()}}
        expanded["alertname"] = rule.name
        notes = {k: v for k, v in rule.annotations.items() if k.startswith("watchdog_")}
        notes.update({k: _expand(t, context) for k, t in rule.annotation_templates.items()})
        return Instance({k: v for k, v in expanded.items() if v}, notes, value)

    def _query(self, expression: str, now: float) -> list[dict[str, Any]]:
        found = vector(self._engine.instant(expression, now))
        return [
            {"Labels": {**({"__name__": m.name} if m.name else {}), **dict(m.labels)}, "Value": v} for m, v in found
        ]

    def _write_state(self, group: Group, standing: Standing, now: float) -> None:
        values: dict[Metric, float] = {}
        for alert in standing.active.values():
            if alert.state != "inactive":
                values[Metric("ALERTS", {**alert.labels, "alertstate": alert.state})] = 1.0
                values[Metric("ALERTS_FOR_STATE", alert.labels)] = alert.active_at
        self._store.append_values(now, values, writer=writer(group, standing.rule))

    def alerts(self) -> list[Alert]:
        """All alerts that are pending or firing, and those resolved in the last 15 minutes."""
        return [a for g in self._groups for s in g.rules for a in s.active.values()] + list(self._orphans)

    def alerts_payload(self) -> list[dict[str, Any]]:
        """As Prometheus' /api/v1/alerts lists them."""
        return [views.alert(a) for a in self.alerts() if a.state != "inactive"]

    def rules_payload(self) -> dict[str, Any]:
        """As Prometheus' /api/v1/rules has it."""
        return {"groups": [views.group(g, self._interval) for g in self._groups]}

    def dump(self) -> list[dict[str, Any]]:
        """The state of every alert, to be kept over a restart."""
        return [
            {"rule": key, "alerts": [views.kept(a) for a in s.active.values()]}
            for key, _, s in keyed(self._groups)
            if s.active
        ]

    def restore(self, kept: Sequence[Mapping[str, Any]]) -> None:
        """Takes up alerts where a former process left them, of the rules that are still in force."""
        self._restored = True
        by_key = {key: (g, s) for key, g, s in keyed(self._groups)}
        for each in kept:
            group, name, labels, alerting, place = each["rule"]
            found = by_key.get((group, name, tuple((k, v) for k, v in labels), alerting, place))
            if found is None:
                continue
            for data in each["alerts"]:
                alert = views.revived(name, f"{group}/{name}", data)
                found[1].active[tuple(sorted(alert.labels.items()))] = alert


def _expand(template: Template, context: Context) -> str:
    try:
        return expand(template, context)
    except TemplateError as error:
        return f"<error expanding template: {error}>"
