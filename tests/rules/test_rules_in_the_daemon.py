"""The pack under the daemon's own rule engine: the same verdicts as promtool, and the same words."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT

from posttrain_watchdog.alerting.check import check
from posttrain_watchdog.alerting.evaluation import Evaluator
from posttrain_watchdog.alerting.rules import RuleSet
from posttrain_watchdog.alerting.templates import Context, expand, parse
from posttrain_watchdog.alerting.unit_tests import run
from posttrain_watchdog.model import Alert, Metric
from posttrain_watchdog.promql.engine import Engine
from posttrain_watchdog.series.store import STALE, Store

RULES = ROOT / "rules"
STEP = 15


def read(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def metric(series: str) -> Metric:
    name, labels = re.fullmatch(r"(\w+)(?:\{(.*)\})?", series).groups()  # type: ignore[union-attr]
    return Metric(name, dict(re.findall(r'(\w+)\s*=\s*"([^"]*)"', labels or "")))


def values(text: str) -> Iterator[float | None]:
    """promtool's series notation, as far as the pack's tests use it."""
    for word in text.split():
        if word in ("_", "stale"):
            yield None if word == "_" else STALE
        elif repeated := re.fullmatch(r"(-?[\d.e]+)([+-][\d.e]+)?x(\d+)", word):
            for n in range(int(repeated[3]) + 1):
                yield float(repeated[1]) + float(repeated[2] or 0) * n
        else:
            yield float(word)


def replay(case: dict[str, Any], rules: RuleSet) -> Iterator[tuple[int, Evaluator, Engine]]:
    """Evaluates the rules at every step of a test case."""
    store = Store()
    engine = Engine(store)
    evaluator = Evaluator(rules, engine, store)
    columns = {metric(s["series"]): list(values(s["values"])) for s in case["input_series"]}
    last = max(int(c["eval_time"].rstrip("s")) for c in case["promql_expr_test"])
    for tick in range(last // STEP + 1):
        now = {m: v[tick] for m, v in columns.items() if tick < len(v) and v[tick] is not None}
        store.append(float(tick * STEP), list(now), list(now.values()))
        evaluator.evaluate(float(tick * STEP))
        yield tick * STEP, evaluator, engine
    assert evaluator.failures == {}


def firing(evaluator: Evaluator, name: str) -> list[Alert]:
    return [a for a in evaluator.alerts() if a.name == name and a.state == "firing"]


def test_every_unit_test_of_the_pack_holds_in_the_daemon_too() -> None:
    report = run(sorted((RULES / "tests").glob("*.yml")))
    assert report.ok, report.text()


def test_rules_that_a_reader_could_misspell_are_clean() -> None:
    findings, count = check(sorted(RULES.glob("*.yml")))
    assert findings == []
    assert count > 80


def first_firing() -> Iterator[tuple[Path, dict[str, Any], str, Evaluator, Engine]]:
    """Each test case with an alert that fires: its file, the check, the alert's name, and the daemon at that moment."""
    for path in sorted((RULES / "tests").glob("*.yml")):
        rules = RuleSet.load([RULES / path.name])
        for case in read(path)["tests"]:
            check = next((c for c in case["promql_expr_test"] if c["exp_samples"]), None)
            if check is None:
                continue
            name = re.findall(r'alertname="(\w+)"', check["expr"])[0]
            for now, evaluator, engine in replay(case, rules):
                if check["eval_time"] == f"{now}s":
                    yield path, {**case, "eval_time": check["eval_time"]}, name, evaluator, engine
                    break


@pytest.mark.real
def test_the_daemon_words_every_alert_as_prometheus_does(tmp_path: Path) -> None:
    """What the daemon says of each alert, labels and annotations, is what promtool is told to expect."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    cases: dict[str, list[dict[str, Any]]] = {}
    worded = set()
    for path, case, name, evaluator, _ in first_firing():
        expected = [
            {"exp_labels": {k: v for k, v in a.labels.items() if k != "alertname"}, "exp_annotations": a.annotations}
            for a in firing(evaluator, name)
        ]
        test = {"eval_time": case["eval_time"], "alertname": name, "exp_alerts": expected}
        whole = {"interval": f"{STEP}s", "input_series": case["input_series"], "alert_rule_test": [test]}
        cases.setdefault(path.name, []).append(whole)
        worded.add(name)
    for name, tests in cases.items():
        file = {"rule_files": [str(RULES / name)], "evaluation_interval": f"{STEP}s", "tests": tests}
        (tmp_path / name).write_text(yaml.safe_dump(file, allow_unicode=True), encoding="utf-8")
    files = map(str, sorted(tmp_path.glob("*.yml")))
    done = subprocess.run([promtool, "test", "rules", *files], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert worded == {r["alert"] for p in RULES.glob("*.yml") for g in read(p)["groups"] for r in g["rules"]}


def test_messages_in_chinese_expand_with_the_figures_of_the_alert() -> None:
    messages = read(RULES / "messages" / "zh.yml")
    for _, case, name, evaluator, engine in first_firing():
        now = float(case["eval_time"].rstrip("s"))
        for alert in firing(evaluator, name):

            def query(expression: str, now: float = now, engine: Engine = engine) -> list[dict[str, Any]]:
                found = engine.instant(expression, now)
                return [{"Labels": dict(m.labels), "Value": v} for m, v in found.samples]  # type: ignore[union-attr]

            labels = {k: v for k, v in alert.labels.items() if k not in ("alertname", "severity")}
            for text in messages[name].values():
                said = expand(parse(text), Context(labels, alert.value, {}, "", query))
                assert "{{" not in said
            described = expand(parse(messages[name]["description"]), Context(labels, alert.value, {}, "", query))
            for figure in re.findall(r"\d+\.\d{2,}", alert.annotations["description"]):
                assert figure in described, (name, described)


def test_an_alert_at_the_edge_of_its_limit_does_not_flap() -> None:
    """Where the daemon can wait for a clear recovery (`watchdog_resolve_expr`), it speaks once."""
    wobble = "1.21 1.19 1.21 1.18 1.22 1.19 1.14"
    case = {
        "input_series": [
            {"series": 'posttrain_importance_ratio_mean_window_mean{run="r", window="20"}', "values": wobble},
            {"series": 'posttrain_importance_ratio_stderr_window_mean{run="r", window="20"}', "values": "0.01x6"},
        ],
        "promql_expr_test": [{"eval_time": "90s"}],
    }
    rules = RuleSet.load([RULES / "consistency.yml"])
    said = [bool(firing(evaluator, "ImportanceRatioOutOfBand")) for _, evaluator, _ in replay(case, rules)]
    assert said == [True] * 6 + [False]


@pytest.mark.parametrize("cause", ["logprobs_mode_raw", "mask_shifted", "stalled"])
def test_a_cause_that_wobbles_around_one_half_is_one_alert(cause: str) -> None:
    case = {
        "input_series": [
            {
                "series": f'posttrain_diagnosis_confidence{{run="r", cause="{cause}"}}',
                "values": "0.45 0.51 0.45 0.52 0.41 0.6 0.3 0.45",
            }
        ],
        "promql_expr_test": [{"eval_time": "105s"}],
    }
    rules = RuleSet.load(sorted(RULES.glob("*.yml")))
    said = [
        bool([a for a in evaluator.alerts() if a.state == "firing" and a.labels["cause"] == cause])
        for _, evaluator, _ in replay(case, rules)
    ]
    assert said == [False, True, True, True, True, True, False, False]
