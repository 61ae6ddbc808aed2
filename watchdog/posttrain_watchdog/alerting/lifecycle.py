"""The life of one rule's alerts as pure logic: inactive, pending, firing, resolved.

As Prometheus has it (rules/alerting.go, v2.42), and beyond it: a series that vanished is not a recovery.

Promises: no I/O, no clock; the same inputs give the same alerts. `active` maps label sets to alerts and is changed
in place; what changed is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from posttrain_watchdog.alerting.rules import Rule
from posttrain_watchdog.model import Alert, LabelPairs

RESOLVED_RETENTION = 15 * 60.0
"""Seconds for which a resolved alert is still sent (resolvedRetention, rules/alerting.go)."""

Change = Literal["pending", "firing", "resolved", "inactive"]


@dataclass(frozen=True, slots=True)
class Transition:
    """An alert that changed its state; `inactive` is a pending one that went away unsaid."""

    alert: Alert
    state: Change


@dataclass(frozen=True, slots=True)
class Instance:
    """One element of the rule's result, its labels and annotations expanded."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    value: float

    @property
    def key(self) -> LabelPairs:
        return tuple(sorted(self.labels.items()))


Asked = Callable[[Alert], bool]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the life cycle must know beyond the rule's result."""

    vanished: Asked
    """whether the data behind an alert vanished (True) rather than the condition became false (False)"""
    recovered: Callable[[Alert], float | None]
    """the value that resolves an alert, where it may resolve; None keeps it"""
    finished: Asked = lambda alert: False
    """whether the run that an alert speaks of has ended as it should"""
    held: Asked = lambda alert: False
    """whether an alert of a former process still waits for its first data: then not even `resolve` resolves it"""


def advance(
    active: dict[LabelPairs, Alert],
    rule: Rule,
    instances: Iterable[Instance],
    now: float,
    around: Surroundings,
) -> list[Transition]:
    """One evaluation."""
    changes: list[Transition] = []
    seen: set[LabelPairs] = set()
    for instance in instances:
        key = instance.key
        seen.add(key)
        alert = active.get(key)
        if alert is None or alert.state == "inactive":
            alert = active[key] = Alert(
                name=rule.name,
                labels=dict(instance.labels),
                annotations=dict(instance.annotations),
                state="pending",
                active_at=now,
                value=instance.value,
            )
            if rule.hold > 0:
                changes.append(Transition(alert, "pending"))
        alert.value, alert.annotations, alert.last_seen = instance.value, dict(instance.annotations), now
        alert.keep_firing_since = None
        if alert.state == "pending" and now - alert.active_at >= rule.hold:
            _fire(alert, now, changes)
    for key, alert in list(active.items()):
        if key in seen:
            continue
        if alert.state == "inactive":
            if alert.resolved_at is None or now - alert.resolved_at > RESOLVED_RETENTION:
                del active[key]
        else:
            changes += _absent(active, key, rule, now, around)
    return changes


def _fire(alert: Alert, now: float, changes: list[Transition]) -> None:
    alert.state, alert.fired_at, alert.resolved_at = "firing", now, None
    changes.append(Transition(alert, "firing"))


def _absent(
    active: dict[LabelPairs, Alert], key: LabelPairs, rule: Rule, now: float, around: Surroundings
) -> list[Transition]:
    """An alert that the rule's result no longer has."""
    alert = active[key]
    changes: list[Transition] = []
    patient = rule.on_missing != "resolve" or around.held(alert)
    if patient and around.vanished(alert) and not around.finished(alert):
        # nothing has said since its data ended that it is well
        alert.keep_firing_since = None
        if alert.state == "pending" and rule.on_missing == "fire":
            _fire(alert, now, changes)
        return changes
    if alert.state == "pending":
        del active[key]
        return [Transition(alert, "inactive")]
    value = around.recovered(alert)
    if value is None:
        alert.keep_firing_since = None
        return changes
    if rule.keep_firing_for > 0:
        if alert.keep_firing_since is None:
            alert.keep_firing_since = now
        if now - alert.keep_firing_since < rule.keep_firing_for:
            return changes
    alert.state, alert.resolved_at, alert.value = "inactive", now, value
    return [Transition(alert, "resolved")]
