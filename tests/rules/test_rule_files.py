"""The rule pack as files: valid for promtool, made of known metrics, complete for the causes."""

from __future__ import annotations

import functools
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


def read(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@functools.cache
def alerts() -> list[tuple[str, dict[str, Any]]]:
    return [(path.name, rule) for path in FILES for group in read(path)["groups"] for rule in group["rules"]]


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


def test_every_cause_has_an_alert() -> None:
    said = {cause for _, rule in alerts() for cause in named_causes(rule["expr"])}
    assert said == set(CAUSES) - {"healthy"}


def test_what_is_normal_in_healthy_runs_only_informs() -> None:
    severity = {r["alert"]: r["labels"]["severity"] for _, r in alerts()}
    for name in (
        "PrecisionNoise",
        "PolicyLag",
        "GpuMemoryReserveLow",
        "ThroughputGap",
        "NvmlDown",
        "CompletionLengthChanged",
    ):
        assert severity[name] == "info"


def test_every_alert_has_a_unit_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires: set[str] = set()
    quiet: set[str] = set()
    for path in (RULES / "tests").glob("*.yml"):
        for case in read(path)["tests"]:
            for check in case["promql_expr_test"]:
                name = re.findall(r'alertname="(\w+)"', check["expr"])[0]
                (fires if check["exp_samples"] else quiet).add(name)
    names = {rule["alert"] for _, rule in alerts()}
    assert names - fires == set()
    assert names - quiet == set()


@pytest.mark.parametrize("language", ["", ".zh"])
def test_the_guide_has_a_section_for_every_alert_with_its_checks(language: str) -> None:
    guide = (ROOT / "docs" / f"guide{language}.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", guide, flags=re.S | re.M))
    messages = read(RULES / "messages" / "zh.yml")
    for _, rule in alerts():
        text = messages[rule["alert"]] if language else rule["annotations"]
        section = sections[rule["alert"]]
        assert text["runbook"] == f"docs/guide{language}.md#{rule['alert'].lower()}"
        for order, name in enumerate(ANNOTATIONS[3:], 1):
            assert f"\n{order}. {text[name]}\n   ```sh\n" in section, rule["alert"]
        assert f"`rules/{_file_of(rule['alert'])}`" in section
    assert set(sections) == {rule["alert"] for _, rule in alerts()}


def _file_of(alert: str) -> str:
    return next(path for path, rule in alerts() if rule["alert"] == alert)


def test_links_inside_the_guides_lead_somewhere() -> None:
    for path in (ROOT / "docs").glob("guide*.md"):
        text = path.read_text(encoding="utf-8")
        anchors = {re.sub(r"[^a-z0-9-]", "", h.lower().replace(" ", "-")) for h in re.findall(r"^#+ (.+)$", text, re.M)}
        assert [a for a in re.findall(r"\]\(#([^)]+)\)", text) if a not in anchors] == []


def test_chinese_messages_use_the_same_figures_as_the_english_ones() -> None:
    messages = read(RULES / "messages" / "zh.yml")
    for _, rule in alerts():
        english, chinese = rule["annotations"], messages[rule["alert"]]
        for name in ("summary", "description"):
            both = [sorted(re.findall(r"\$labels\.\w+|\$value|posttrain_\w+", t[name])) for t in (english, chinese)]
            assert both[0] == both[1], rule["alert"]
        assert re.search(r"[\u4e00-\u9fff]", chinese["description"])


def test_limits_that_the_guide_offers_are_read_by_the_rules() -> None:
    used = {n for _, r in alerts() for n in re.findall(r'posttrain_limit\{name="(\w+)"\}', r["expr"])}
    for path in (ROOT / "docs").glob("guide*.md"):
        offered = set(re.findall(r"\| `(\w+)` \|$", path.read_text(encoding="utf-8"), re.M))
        assert offered
        assert offered <= used


def test_inhibition_names_only_what_exists() -> None:
    rules = read(RULES / "alertmanager" / "inhibit.yml")["inhibit_rules"]
    names = {rule["alert"] for _, rule in alerts()}
    for rule in rules:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            label, values = re.fullmatch(r'(\w+)=~?"([^"]+)"', matcher).groups()  # type: ignore[union-attr]
            assert set(values.split("|")) <= (names if label == "alertname" else set(CAUSES)), matcher


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


@pytest.mark.real
def test_alertmanager_accepts_the_inhibition(tmp_path: Path) -> None:
    amtool = shutil.which("amtool")
    if amtool is None:
        pytest.skip("amtool is not installed")
    config = tmp_path / "alertmanager.yml"
    inhibit = (RULES / "alertmanager" / "inhibit.yml").read_text(encoding="utf-8")
    config.write_text("route: {receiver: a}\nreceivers: [{name: a}]\n" + inhibit, encoding="utf-8")
    done = subprocess.run([amtool, "check-config", str(config)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "inhibit rules" in done.stdout
