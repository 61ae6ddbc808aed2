"""The house rules that no linter knows."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import ROOT

from posttrain_watchdog.vocabulary import METRICS
from posttrain_watchdog.vocabulary.trainer import CANONICAL, PREFIX

PACKAGE = ROOT / "watchdog" / "posttrain_watchdog"


def test_the_shelf_is_no_package() -> None:
    assert not (ROOT / "watchdog" / "__init__.py").exists()


def test_modules_stay_under_four_hundred_lines() -> None:
    long = {
        str(p.relative_to(PACKAGE)): n
        for p in PACKAGE.rglob("*.py")
        if (n := len(p.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long


def test_every_metric_has_help_and_a_prometheus_name() -> None:
    for name, spec in METRICS.items():
        assert name.startswith("posttrain_"), name
        assert spec.help, name
        assert (spec.kind == "counter") == (name.endswith("_total") and name != "posttrain_trainer_tokens_total"), name


def test_canonical_names_of_the_knowledge_base_have_a_home(knowledge: Path) -> None:
    canonical = json.loads((knowledge / "synonyms.json").read_text())["_canonical"]
    assert [c for c in canonical if PREFIX + CANONICAL.get(c, c) not in METRICS] == []
