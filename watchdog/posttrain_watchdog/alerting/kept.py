"""Keeps the alerts over a restart: `for`, `keep_firing_for` and startsAt go on as if nothing had happened.

Promises: all alerts are written in one transaction or none; a record that cannot be read is left out, not fatal.
Prometheus restores `for` only above 10 minutes and only within an hour's outage, and startsAt anew; here both are
exact. Raises StateError, which the caller counts: alerts go on in memory.
"""

from __future__ import annotations

import orjson

from posttrain_watchdog.alerting.evaluation import Evaluator
from posttrain_watchdog.state import State

AREA = "alerts"


def save(state: State, evaluator: Evaluator) -> None:
    """Writes what changed since the last time."""
    state.replace(AREA, {orjson.dumps(each["rule"]).decode(): each for each in evaluator.dump()})


def restore(state: State, evaluator: Evaluator) -> list[str]:
    """Takes up the alerts of the rules in force; returns a line for each record that could not be read."""
    unread = []
    for key, each in state.items(AREA).items():
        try:
            evaluator.restore([each])
        except (KeyError, TypeError, ValueError) as error:
            unread.append(f"kept alerts of {key}: {type(error).__name__}: {error}")
    return unread
