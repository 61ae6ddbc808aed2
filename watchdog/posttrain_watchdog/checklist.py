"""Gathers what the go-live checklist needs: from finished files through the pipeline, or from a running daemon."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import httpx

from posttrain_watchdog.alerting.rules import RuleSet
from posttrain_watchdog.config import Config
from posttrain_watchdog.model import Diagnosis, Metric, Row
from posttrain_watchdog.preflight.facts import facts
from posttrain_watchdog.preflight.measurements import Measurements
from posttrain_watchdog.replay import NothingUsable, replay


class Unreachable(ValueError):
    """The daemon cannot be asked; the text says why."""


def from_files(paths: Sequence[Path]) -> Measurements:
    """Logs, dumps and configurations of one run. Raises NothingUsable (a ValueError) if none can be read."""
    measured = Measurements(facts=facts(paths))
    try:
        result = replay(paths, Config(), RuleSet(), observer=measured.observe)
    except NothingUsable:
        if not measured.facts:
            raise
        return measured
    measured.diagnoses = [d for run in result.runs for d in run.diagnoses]
    return measured


def from_daemon(url: str, timeout: float = 10.0) -> Measurements:
    """A running daemon, through its own API: the last values of every series, and its diagnoses."""
    base = url.rstrip("/")
    measured = Measurements()
    try:
        with httpx.Client(timeout=timeout, trust_env=False) as client:
            found = client.get(base + "/api/v1/query", params={"query": '{__name__=~"posttrain_.+"}'})
            named = client.get(base + "/api/v1/diagnoses")
            found.raise_for_status()
            named.raise_for_status()
            samples, diagnoses = found.json()["data"]["result"], named.json()["data"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise Unreachable(f"{base}: {type(error).__name__}: {error}: expected a running posttrain-watchdog") from None
    values: dict[Metric, float] = {}
    for sample in samples:
        labels = {k: v for k, v in sample["metric"].items() if k not in ("__name__", "run", "instance")}
        values[Metric(sample["metric"]["__name__"], labels)] = float(sample["value"][1])
    measured.observe(Row(values))
    measured.diagnoses = [
        Diagnosis(d["cause"], d["confidence"], d["summary"], d["evidence"], tuple(d["first_checks"]), d["first_step"])
        for d in diagnoses
    ]
    return measured
