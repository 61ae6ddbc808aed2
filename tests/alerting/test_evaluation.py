"""The life of alerts: as Prometheus has it, and better where a run ends badly."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

from posttrain_watchdog.alerting.evaluation import Evaluator
from posttrain_watchdog.alerting.rules import RuleError, RuleSet, parse_rules
from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql.engine import Engine
from posttrain_watchdog.series.store import Store
from posttrain_watchdog.shipped import rule_files


class Bench:
    """A store, rules and a clock of its own."""

    def __init__(self, rules: str) -> None:
        self.store = Store()
        self.engine = Engine(self.store)
        self.rules = RuleSet(tuple(parse_rules(textwrap.dedent(rules))))
        self.evaluator = Evaluator(self.rules, self.engine, self.store)

    def at(self, time: float, values: Mapping[str, float], *, finished: bool = False) -> list[tuple[str, str]]:
        """One tick; run name -> value of the metric `x`. Returns (run, new state)."""
        metrics = {Metric("x", {"run": run}): value for run, value in values.items()}
        self.store.append_values(time, metrics, writer="live")
        changes = self.evaluator.evaluate(time, run_finished=finished)
        return [(c.alert.labels.get("run", ""), c.state) for c in changes]


HIGH = """
    groups:
      - name: g
        rules:
          - alert: High
            expr: x > 5
            for: 1m
            labels: {severity: critical}
            annotations: {summary: "{{ $labels.run }} is {{ $value }}"}
"""


def test_an_alert_is_pending_for_its_time_then_fires_then_resolves() -> None:
    bench = Bench(HIGH)
    assert bench.at(0, {"a": 9, "b": 1}) == [("a", "pending")]
    assert bench.at(30, {"a": 9}) == []
    assert bench.at(60, {"a": 8}) == [("a", "firing")]
    alert = bench.evaluator.alerts()[0]
    assert alert.annotations["summary"] == "a is 8"
    assert alert.active_at == 0
    assert bench.at(75, {"a": 2}) == [("a", "resolved")]
    assert alert.value == 2, "the resolved message carries the value that resolved it"
    assert alert.annotations["summary"] == "a is 2"


def test_a_pending_alert_that_recovers_is_forgotten_and_starts_anew() -> None:
    bench = Bench(HIGH)
    bench.at(0, {"a": 9})
    assert bench.at(30, {"a": 1}) == [("a", "inactive")]
    assert bench.at(45, {"a": 9}) == [("a", "pending")]
    assert bench.at(90, {"a": 9}) == []
    assert bench.at(105, {"a": 9}) == [("a", "firing")]


def test_a_run_that_crashes_does_not_resolve_its_own_alert() -> None:
    bench = Bench(HIGH)
    for time in (0, 60):
        bench.at(time, {"a": 9, "b": 1})
    assert bench.at(75, {"b": 1}) == []
    assert bench.at(7200, {"b": 1}) == []
    assert [a.state for a in bench.evaluator.alerts()] == ["firing"]
    assert bench.at(7215, {"a": 1, "b": 1}) == [("a", "resolved")]


def test_a_run_that_finished_resolves_what_it_left() -> None:
    bench = Bench(HIGH)
    for time in (0, 60):
        bench.at(time, {"a": 9})
    assert bench.at(75, {}, finished=True) == [("a", "resolved")]


@pytest.mark.parametrize(("choice", "changes"), [("resolve", [("a", "resolved")]), ("keep", []), ("fire", [])])
def test_what_a_vanished_series_means_is_the_rules_choice(choice: str, changes: list[tuple[str, str]]) -> None:
    bench = Bench(HIGH.replace("annotations: {", f"annotations: {{watchdog_on_missing: {choice}, "))
    for time in (0, 60):
        bench.at(time, {"a": 9, "b": 1})
    assert bench.at(75, {"b": 1}) == changes


def test_a_pending_alert_whose_data_ends_can_be_made_to_fire() -> None:
    bench = Bench(HIGH.replace("annotations: {", "annotations: {watchdog_on_missing: fire, "))
    bench.at(0, {"a": 9})
    assert bench.at(15, {}) == [("a", "firing")]


def test_keep_firing_for_bridges_a_gap() -> None:
    bench = Bench(HIGH.replace("for: 1m", "keep_firing_for: 1m"))
    assert bench.at(0, {"a": 9}) == [("a", "firing")]
    assert bench.at(15, {"a": 1}) == []
    assert bench.at(60, {"a": 9}) == []
    assert bench.at(75, {"a": 1}) == []
    assert bench.at(135, {"a": 1}) == [("a", "resolved")]


def test_hysteresis_holds_until_the_other_condition_is_true() -> None:
    bench = Bench(
        HIGH.replace("for: 1m", "for: 0s").replace("annotations: {", 'annotations: {watchdog_resolve_expr: "x < 3", ')
    )
    assert bench.at(0, {"a": 9}) == [("a", "firing")]
    assert bench.at(15, {"a": 4}) == []
    assert bench.at(30, {"a": 2}) == [("a", "resolved")]


def test_state_survives_a_restart_exactly() -> None:
    bench = Bench(HIGH)
    bench.at(0, {"a": 9})
    kept = orjson.loads(orjson.dumps(bench.evaluator.dump()))
    again = Bench(HIGH)
    again.evaluator.restore(kept)
    assert again.at(61, {"a": 9}) == [("a", "firing")]
    assert again.evaluator.alerts()[0].active_at == 0


def test_a_reload_keeps_the_alerts_of_rules_that_stay() -> None:
    bench = Bench(HIGH)
    for time in (0, 60):
        bench.at(time, {"a": 9})
    bench.evaluator.replace(bench.rules)
    assert bench.at(75, {"a": 9}) == []


def test_recording_rules_come_before_the_rules_that_use_them() -> None:
    bench = Bench(
        """
        groups:
          - name: g
            rules:
              - {record: "twice:x", expr: "2 * x", labels: {by: rule}}
              - {alert: High, expr: 'twice:x{by="rule"} > 10'}
        """
    )
    assert bench.at(0, {"a": 6, "b": 5}) == [("a", "firing")]


def test_alerts_are_series_too_and_end_when_the_alert_does() -> None:
    bench = Bench(HIGH)
    states = []
    for time, value in ((0, 9), (60, 9), (75, 1)):
        bench.at(time, {"a": value})
        found = bench.engine.instant('ALERTS{run="a"}', time)
        states.append([dict(m.labels)["alertstate"] for m, _ in found.samples])  # type: ignore[union-attr]
    assert states == [["pending"], ["firing"], []]


def test_a_rule_that_fails_is_counted_and_the_others_go_on() -> None:
    bench = Bench(
        """
        groups:
          - name: g
            rules:
              - {alert: Same, expr: x > 0, labels: {run: all}}
              - {alert: Good, expr: x > 5}
        """
    )
    assert bench.at(0, {"a": 9, "b": 1}) == [("a", "firing")]
    assert bench.evaluator.failures == {"g/Same": 1}
    rules = bench.evaluator.rules_payload()["groups"][0]["rules"]
    assert [r["health"] for r in rules] == ["err", "ok"]
    assert "same labelset" in rules[0]["lastError"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("groups:\n- name: a\n  rulez: []\n", "<rules>:3: group 'a': field 'rulez' is not known in a group"),
        ("groups:\n- name: a\n- name: a\n", "<rules>:3: groupname: 'a' is repeated in the same file"),
        (
            "groups:\n- name: a\n  rules:\n  - alert: X\n    expr: sum(x\n",
            "<rules>:5: group 'a': rule 'X': could not parse expression:",
        ),
        (
            "groups:\n- name: a\n  rules:\n  - alert: X\n    expr: x\n    for: soon\n",
            "<rules>:6: group 'a': rule 'X': for: not a valid duration string: 'soon'",
        ),
        (
            "groups:\n- name: a\n  rules:\n  - record: a:b\n    expr: x\n    for: 1m\n",
            "<rules>:6: group 'a': rule 'a:b': invalid field 'for' in recording rule",
        ),
        ("groups:\n- name: a\n  rules:\n  - expr: x\n", "<rules>:4: group 'a': exactly one of"),
        (
            "groups:\n- name: a\n  rules:\n  - alert: X\n    expr: x\n    annotations:\n      s: '{{ $y }}'\n",
            "<rules>:7: group 'a': rule 'X': annotation 's': template: 1:4: undefined variable",
        ),
        ("groups: [\n", "<rules>:2: expected YAML:"),
    ],
)
def test_a_broken_rule_file_names_group_rule_and_line(text: str, expected: str) -> None:
    with pytest.raises(RuleError) as error:
        parse_rules(text)
    assert str(error.value).startswith(expected)


def test_every_fault_of_every_file_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("groups: 1\n")
    (tmp_path / "b.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(RuleError) as error:
        RuleSet.load([tmp_path / "a.yml", tmp_path / "b.yml", tmp_path / "c.yml"])
    assert [f.path.rsplit("/", 1)[1] for f in error.value.faults] == ["a.yml", "b.yml", "c.yml"]


def test_the_shipped_rules_load() -> None:
    assert len(list(RuleSet.load(rule_files()).rules())) > 30
