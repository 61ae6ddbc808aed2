"""Alerts can be worded in Chinese and stay the same alerts."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT

from posttrain_watchdog.alerting.messages import load, worded
from posttrain_watchdog.alerting.rules import RuleError, RuleSet
from posttrain_watchdog.shipped import rule_files

CHINESE = ROOT / "rules" / "messages" / "zh.yml"


def test_every_shipped_alert_has_chinese_words_and_keeps_its_identity() -> None:
    rules = RuleSet.load(rule_files())
    chinese = worded(rules, load(CHINESE))
    for (_, rule), (_, other) in zip(rules.rules(), chinese.rules(), strict=True):
        assert (other.name, other.expr, other.labels, other.on_missing) == (
            rule.name,
            rule.expr,
            rule.labels,
            rule.on_missing,
        )
        if rule.alerting:
            assert other.annotations["summary"] != rule.annotations["summary"], rule.name
            assert set(other.annotations) == set(rule.annotations)


@pytest.mark.parametrize("text", ["- a", "A: 5", "A: {summary: '{{ $x'}", "[", "\x00"])
def test_messages_that_cannot_be_used_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "zh.yml").write_text(text)
    with pytest.raises(RuleError, match=r"zh\.yml"):
        load(tmp_path / "zh.yml")
