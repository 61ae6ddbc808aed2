"""The tracker drops metrics: what is on the dashboard is stale, the run may be fine.

Guards: one or two warnings after a resume are ordinary (the tracker already holds those steps).
"""

from __future__ import annotations

from posttrain_watchdog.incidents.finding import STATED, STRONG, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History

_MANY = 3


def judge(history: History) -> Finding | None:
    said = history.events("metrics_dropped")
    if not said:
        return None
    count = history.counts["metrics_dropped"]
    lost = any("not be synced" in e.text or "uploading" in e.text for e in said)
    if lost or count >= _MANY:
        odds = STATED
    else:
        odds = SUPPORT if history.events("resumed") else STRONG
    return Finding(
        summary=f"the tracker dropped metrics {count} times",
        witnesses={"the tracker says so": odds},
        evidence={"lines": float(count), "line": said[-1].text[:200]},
        first_checks=(
            "the step given to the tracker: it must not go back (resume, several loggers, evaluation)",
            "network and quota of the tracker",
            "trust the console or the files, not the dashboard, since that step",
        ),
        first_step=said[0].step,
    )
