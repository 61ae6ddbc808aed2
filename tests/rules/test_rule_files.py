"""The rule pack as files: valid for promtool, made of known metrics, complete for the causes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT

from posttrain_watchdog.vocabulary import CAUSES, METRICS, window_specs

RULES = ROOT / "rules"
FILES = sorted(RULES.glob("*.yml"))
FIXED = [
    "ImportanceRatioOutOfBand",
    "TrainerEngineKLHigh",
    "LogprobsModeWrong",
    "EngineLogprobsMissing",
    "PromptLogprobsMissing",
    "CompletionMaskFault",
    "LogprobsMisaligned",
    "StaleWeights",
    "SamplingTruncated",
    "TemperatureMismatch",
    "NonFiniteLogprobs",
]
ANNOTATIONS = ("summary", "description", "runbook", "first_check", "second_check", "third_check")


def alerts() -> list[tuple[str, dict[str, Any]]]:
    return [
        (path.name, rule)
        for path in FILES
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    ]


def known_names() -> set[str]:
    names = {"posttrain_watchdog_"}
    for spec in METRICS.values():
        names |= {spec.name, *(s.name for s in window_specs(spec))}
        if spec.kind == "histogram":
            names |= {spec.name + suffix for suffix in ("_bucket", "_sum", "_count")}
    return names


def named_causes(expr: str) -> set[str]:
    """The causes whose confidence an expression asks for."""
    return {
        cause
        for values in re.findall(r'posttrain_diagnosis_confidence\{cause=~?"([^"]+)"\}', expr)
        for cause in values.split("|")
    }


def test_every_metric_that_a_rule_names_is_in_the_vocabulary() -> None:
    known = known_names()
    unknown = {
        (name, rule["alert"])
        for _, rule in alerts()
        for text in (rule["expr"], *rule["annotations"].values())
        for name in re.findall(r"\bposttrain_[a-z0-9_]+", text)
        if name not in known
    }
    assert not unknown


def test_the_alert_names_that_others_rely_on_exist() -> None:
    assert set(FIXED) <= {rule["alert"] for _, rule in alerts()}


def test_every_alert_says_how_bad_it_is_and_what_to_look_at_first_second_third() -> None:
    for path, rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), (path, rule["alert"])
        assert [a for a in ANNOTATIONS if not rule["annotations"].get(a)] == [], (path, rule["alert"])


def test_the_guides_order_of_checks_leads_where_the_ratio_is_off() -> None:
    first = {r["alert"]: [r["annotations"][a] for a in ANNOTATIONS[3:]] for _, r in alerts()}
    for name in ("ImportanceRatioOutOfBand", "LogprobsModeWrong", "TrainerEngineKLHigh"):
        mode, prompt, mask = first[name]
        assert "processed_logprobs" in mode
        assert "prompt_logprobs" in prompt
        assert "completion_mask" in mask


def test_only_real_causes_are_named() -> None:
    for _, rule in alerts():
        assert named_causes(rule["expr"]) <= set(CAUSES), rule["alert"]


def test_the_applied_importance_weight_is_never_held_against_a_limit() -> None:
    assert [r["alert"] for _, r in alerts() if "is_weight_" in r["expr"]] == []


@pytest.mark.real
@pytest.mark.parametrize("verb", ["check", "test"])
def test_promtool_accepts_the_pack(verb: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    files = FILES if verb == "check" else sorted(Path(RULES / "tests").glob("*.yml"))
    done = subprocess.run([promtool, verb, "rules", *map(str, files)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
