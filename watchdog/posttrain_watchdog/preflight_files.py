"""`check FILE...`: hands each file to the room that knows its kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from posttrain_watchdog.alerting.check import check as check_rules
from posttrain_watchdog.config import Config, ConfigError, load
from posttrain_watchdog.preflight.check import check as check_run
from posttrain_watchdog.preflight.finding import Finding


def check_files(paths: Sequence[Path]) -> list[Finding]:
    """Findings of rule files, of the daemon's own configuration, and of everything else as a run's configuration."""
    findings: list[Finding] = []
    others: list[Path] = []
    for path in paths:
        kind = _kind(path)
        if kind == "rules":
            found, _ = check_rules([path])
            findings += [
                Finding("rule", "critical" if f.severity == "error" else "warning", f.path, f.line, "", f.message, "")
                for f in found
            ]
        elif kind == "daemon":
            findings += _own(path)
        else:
            others.append(path)
    return findings + (check_run(others) if others else [])


def _kind(path: Path) -> str:
    if path.is_dir():
        return ""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return ""
    if not isinstance(data, dict):
        return ""
    if isinstance(data.get("groups"), list) and all(isinstance(g, dict) and "rules" in g for g in data["groups"]):
        return "rules"
    own = set(Config.model_fields)
    return "daemon" if data and set(data) <= own and "runs" in data else ""


def _own(path: Path) -> list[Finding]:
    try:
        load(path)
    except ConfigError as error:
        findings = []
        for text in str(error).splitlines():
            place, _, message = text.removeprefix(f"{path}:").partition(": ")
            line = int(place) if place.isdigit() else 0
            findings.append(Finding("daemon-config", "critical", str(path), line, "", message, ""))
        return findings
    return []
