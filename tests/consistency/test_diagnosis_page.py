"""docs/diagnosis.md speaks of every cause that tokens can show, and every judge is a cause of the vocabulary."""

from __future__ import annotations

from conftest import ROOT

from posttrain_watchdog.consistency.diagnosis import judges
from posttrain_watchdog.vocabulary import CAUSES, TOKEN_CAUSES


def test_every_cause_has_its_section() -> None:
    page = (ROOT / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    assert [c for c in (*TOKEN_CAUSES, *judges()) if f"### {c}\n" not in page] == []


def test_every_cause_has_a_judge_and_every_judge_a_cause() -> None:
    assert set(judges()) <= set(CAUSES)
    assert set(TOKEN_CAUSES) - set(judges()) == {"healthy", "unknown"}
