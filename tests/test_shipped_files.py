"""What is shipped beside the program passes the tools of its own field."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

from posttrain_watchdog.alerting.check import known_names
from posttrain_watchdog.promql.engine import Engine
from posttrain_watchdog.promql.inspect import names
from posttrain_watchdog.series.store import Store

DASHBOARDS = sorted((ROOT / "grafana").glob("*.json"))


def expressions(dashboard: Path) -> list[str]:
    data = json.loads(dashboard.read_text(encoding="utf-8"))
    return [t["expr"].replace("$run", ".*") for p in data["panels"] for t in p.get("targets", [])]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda p: p.stem)
def test_every_expression_of_a_dashboard_can_be_evaluated_here_and_names_what_we_expose(dashboard: Path) -> None:
    engine, known = Engine(Store()), {*known_names(), "ALERTS"}
    asked = expressions(dashboard)
    assert len(asked) > 10
    for expression in asked:
        engine.instant(expression, 0.0)
        assert set(names(expression)) <= known, expression


@pytest.mark.real
def test_the_unit_passes_systemds_own_check() -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    unit = ROOT / "systemd" / "posttrain-watchdog.service"
    done = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True)
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


@pytest.mark.slow
def test_the_wheel_carries_rules_dashboards_units_documents_and_recordings(tmp_path: Path) -> None:
    hatchling = pytest.importorskip("hatchling.build", reason="hatchling is not installed here")
    here = Path.cwd()
    os.chdir(ROOT)
    try:
        name = hatchling.build_wheel(str(tmp_path))
    finally:
        os.chdir(here)
    inside = set(zipfile.ZipFile(tmp_path / name).namelist())
    shipped = "posttrain_watchdog/_shipped/"
    for path in ("rules/consistency.yml", "grafana/posttrain-watchdog.json", "systemd/posttrain-watchdog.service"):
        assert shipped + path in inside
    assert shipped + "docs/guide.md" in inside
    assert "posttrain_watchdog/recordings/raw-logprobs/tokens.jsonl.gz" in inside
    assert "posttrain_watchdog/web/style.css" in inside
    assert not [n for n in inside if n.startswith("watchdog/")]
