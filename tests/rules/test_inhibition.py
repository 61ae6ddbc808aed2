"""Root causes silence their symptoms, and never one another in a circle."""

from __future__ import annotations

import functools
from graphlib import TopologicalSorter

from conftest import ROOT

from posttrain_watchdog.alerting.inhibition import Inhibitor
from posttrain_watchdog.alerting.rules import RuleSet
from posttrain_watchdog.vocabulary import CAUSES

INHIBIT = ROOT / "rules" / "alertmanager" / "inhibit.yml"


@functools.cache
def every_alert() -> list[dict[str, str]]:
    """The labels of each alert of the pack, once for each cause that it can carry."""
    found = []
    for _, rule in RuleSet.load(sorted((ROOT / "rules").glob("*.yml"))).rules():
        causes = [c for c in CAUSES if f'"{c}"' in rule.expr or f"{c}|" in rule.expr or f'|{c}"' in rule.expr]
        for cause in causes if "diagnosis_confidence" in rule.expr and " unless on" not in rule.expr else [""]:
            labels = {"alertname": rule.name, "severity": rule.labels["severity"], "run": "r", "cause": cause}
            found.append({k: v for k, v in labels.items() if v})
    return found


@functools.cache
def inhibitor() -> Inhibitor:
    return Inhibitor.load(INHIBIT)


def silenced(*alerts: dict[str, str]) -> list[str]:
    return [alerts[place]["alertname"] for place in sorted(inhibitor().muted(alerts))]


def named(alert: str, cause: str = "") -> dict[str, str]:
    return next(a for a in every_alert() if a["alertname"] == alert and a.get("cause", "") == cause)


def test_a_named_cause_silences_the_limits_that_it_breaks() -> None:
    mode, band = named("LogprobsModeWrong", "logprobs_mode_raw"), named("ImportanceRatioOutOfBand")
    assert silenced(mode, band, named("TrainerEngineKLHigh")) == ["ImportanceRatioOutOfBand", "TrainerEngineKLHigh"]
    assert silenced(band) == []
    assert silenced(mode, {**band, "run": "another"}) == []


def test_a_dead_worker_explains_the_hang_and_a_lost_gpu_explains_both() -> None:
    worker, hang = named("WorkerDied"), named("CollectiveHang", "collective_hang")
    assert silenced(worker, hang) == ["CollectiveHang"]
    assert set(silenced(named("GpuLost"), worker, hang)) == {"WorkerDied", "CollectiveHang"}


def test_nothing_harmless_silences_a_fault() -> None:
    alerts = every_alert()
    for quiet in (a for a in alerts if a["severity"] == "info"):
        for loud in (a for a in alerts if a["severity"] == "critical"):
            assert silenced(quiet, loud) != [loud["alertname"]], (quiet, loud)


def test_no_circle_of_alerts_silences_itself() -> None:
    alerts = every_alert()
    graph: dict[str, set[str]] = {}
    for source in alerts:
        for target in alerts:
            if source["alertname"] != target["alertname"] and target["alertname"] in silenced(source, target):
                graph.setdefault(target["alertname"], set()).add(source["alertname"])
    assert list(TopologicalSorter(graph).static_order())
