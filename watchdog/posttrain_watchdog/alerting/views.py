"""Alerts and rules as plain data: for Prometheus' HTTP API (2.42) and for keeping over a restart.

Promises: pure; numbers are written as Go's strconv writes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

from posttrain_watchdog.alerting.standing import Standing, StandingGroup
from posttrain_watchdog.model import Alert

ZERO_TIME = "0001-01-01T00:00:00Z"
"""Go's time that was never set."""


def rfc3339(seconds: float) -> str:
    try:
        moment = datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return ZERO_TIME
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def exponent_form(value: float) -> str:
    """The shortest text in exponent form that reads back as the same number: 1e+00, -2.5e-03."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    head, tail = str(digits[0]), "".join(map(str, digits[1:]))
    power = 0 if value == 0 else int(exponent) + len(tail)
    return f"{'-' if sign else ''}{head}{'.' + tail if tail else ''}e{power:+03d}"


def alert(each: Alert) -> dict[str, Any]:
    """One alert of /api/v1/alerts."""
    view = {
        "labels": each.labels,
        "annotations": each.annotations,
        "state": each.state,
        "activeAt": rfc3339(each.active_at),
        "value": exponent_form(each.value),
    }
    if each.keep_firing_since is not None:
        view["keepFiringSince"] = rfc3339(each.keep_firing_since)
    return view


def group(each: StandingGroup, interval: float) -> dict[str, Any]:
    """One group of /api/v1/rules."""
    return {
        "name": each.group.name,
        "file": each.group.path,
        "rules": [_rule(s) for s in each.rules],
        "interval": interval if each.group.interval is None else each.group.interval,
        "limit": each.group.limit,
        "evaluationTime": each.seconds,
        "lastEvaluation": rfc3339(each.evaluated) if each.evaluated else ZERO_TIME,
    }


def _rule(standing: Standing) -> dict[str, Any]:
    rule = standing.rule
    common: dict[str, Any] = {
        "name": rule.name,
        "query": rule.expr,
        "labels": dict(rule.labels),
        "health": standing.health,
        "evaluationTime": standing.seconds,
        "lastEvaluation": rfc3339(standing.evaluated) if standing.evaluated else ZERO_TIME,
    }
    if standing.error:
        common["lastError"] = standing.error
    if not rule.alerting:
        return {**common, "type": "recording"}
    alerts = [a for a in standing.active.values() if a.state != "inactive"]
    states = {a.state for a in alerts}
    return {
        **common,
        "type": "alerting",
        "state": "firing" if "firing" in states else "pending" if states else "inactive",
        "duration": rule.hold,
        "keepFiringFor": rule.keep_firing_for,
        "annotations": dict(rule.annotations),
        "alerts": [alert(a) for a in alerts],
    }


_KEPT = ("labels", "annotations", "state", "active_at", "fired_at", "resolved_at", "keep_firing_since")


def kept(each: Alert) -> dict[str, Any]:
    """What of an alert is kept over a restart; numbers that JSON does not know are written as text."""
    return {**{name: getattr(each, name) for name in _KEPT}, "value": repr(each.value)}


def revived(name: str, rule: str, data: Mapping[str, Any]) -> Alert:
    """The alert again."""
    return Alert(name=name, rule=rule, value=float(data["value"]), **{key: data[key] for key in _KEPT})
