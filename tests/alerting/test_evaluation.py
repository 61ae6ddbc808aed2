"""The life of alerts: as Prometheus has it, and better where a run ends badly."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

from posttrain_watchdog.alerting import kept
from posttrain_watchdog.alerting.evaluation import Evaluator
from posttrain_watchdog.alerting.rules import RuleError, RuleSet, parse_rules
from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql.engine import Engine
from posttrain_watchdog.series.store import Store
from posttrain_watchdog.shipped import rule_files
from posttrain_watchdog.state import State


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


def test_a_limit_that_is_still_there_is_no_sign_of_life() -> None:
    """posttrain_limit and ALERTS carry labels of the alert too; only what was judged counts."""
    bench = Bench(
        """
        groups:
          - name: g
            rules:
              - alert: High
                expr: |
                  x > on () group_left () (max(limit) or vector(5))
                    or (x > 3 and on (run) ALERTS{alertname="High", alertstate="firing"})
        """
    )
    limit = {Metric("limit", {"run": "a"}): 6.0}
    for time in (0, 15):
        bench.store.append_values(time, limit, writer="limits")
        bench.at(time, {"a": 9})
    bench.store.append_values(30, limit, writer="limits")
    assert bench.at(30, {}) == []
    assert [a.state for a in bench.evaluator.alerts()] == ["firing"]
    assert bench.at(45, {"a": 4}) == []
    assert bench.at(60, {"a": 2}) == [("a", "resolved")]
    assert bench.evaluator.alerts()[0].value == 2


@pytest.mark.parametrize(
    ("expr", "vanishes"),
    [
        ("x > 5", True),
        ("5 < x", True),
        ("sum by (run) (x) > 5", True),
        ("max_over_time(x[30s]) > 5", True),
        ("x > 5 unless on (run) other == 1", True),
        ("x > 5 and on (run) y > 5", True),
        ("x > 5 and x > on (run) y", True),
        ("topk(1, x) > 5", True),
        ("(x > 5) * 2", True),
        ('label_replace(x, "who", "$1", "run", "(.*)") > 5', True),
        ("max_over_time((x > 5)[30s:15s])", True),
        ('count_values by (run) ("v", x > 5)', True),
        ('absent(gone{run="a"}) and on (run) x > 5', True),
    ],
)
def test_ended_data_is_told_from_a_false_condition(expr: str, vanishes: bool) -> None:
    """Whatever the shape of the expression: low values resolve, no values keep."""
    for ends, expected in ((False, 1), (True, 0)):
        bench = Bench(f"groups: [{{name: g, rules: [{{alert: A, expr: '{expr}'}}]}}]")
        y = {Metric("y", {"run": "a"}): 6.0}
        changes = []
        for time in range(0, 75, 15):
            bench.store.append_values(time, y, writer="y")
            changes += bench.at(time, {"a": 9.0})
        assert [c[1] for c in changes] == ["firing"], expr
        for time in range(75, 600, 15):
            bench.store.append_values(time, y, writer="y")
            changes += bench.at(time, {} if ends else {"a": 1.0})
        assert [c[1] for c in changes][1:] == ["resolved"] * expected, (expr, ends)


def test_absence_that_ends_is_a_recovery() -> None:
    bench = Bench("groups: [{name: g, rules: [{alert: Gone, expr: 'absent(x{run=\"a\"})'}]}]")
    assert bench.at(0, {}) == [("a", "firing")]
    assert bench.at(15, {"a": 1}) == [("a", "resolved")]


def test_alerts_of_a_run_that_finished_resolve_and_those_of_others_stay() -> None:
    bench = Bench(HIGH)
    for time in (0, 60):
        bench.at(time, {"a": 9, "b": 9})
    changes = bench.evaluator.evaluate(75.0)
    assert changes == []
    bench.store.append_values(90, {}, writer="live")
    changes = bench.evaluator.evaluate(90.0, finished_runs={"b"})
    assert [(c.alert.labels["run"], c.state) for c in changes] == [("b", "resolved")]


def test_a_corrected_limit_keeps_the_alert_and_a_rule_taken_away_resolves_it() -> None:
    bench = Bench(HIGH)
    for time in (0, 60):
        bench.at(time, {"a": 9})
    bench.evaluator.replace(RuleSet(tuple(parse_rules(HIGH.replace("x > 5", "x > 6")))))
    assert bench.at(75, {"a": 9}) == []
    bench.evaluator.replace(RuleSet())
    assert bench.at(90, {"a": 9}) == [("a", "resolved")]
    assert bench.engine.instant("ALERTS", 90).samples == []  # type: ignore[union-attr]
    assert [a.resolved_at for a in bench.evaluator.alerts()] == [90]
    bench.at(90 + 901, {"a": 9})
    assert bench.evaluator.alerts() == []


def test_two_rules_of_one_name_keep_their_alerts_apart() -> None:
    rules = """
        groups:
          - name: g
            rules:
              - {alert: High, expr: x > 5, labels: {severity: warning}}
              - {alert: High, expr: x > 8, labels: {severity: critical}}
        """
    bench = Bench(rules)
    bench.at(0, {"a": 9})
    kept = orjson.loads(orjson.dumps(bench.evaluator.dump()))
    again = Bench(rules)
    again.evaluator.restore(kept)
    assert again.at(15, {"a": 7}) == [("a", "resolved")]
    assert [(a.labels["severity"], a.state) for a in again.evaluator.alerts()] == [
        ("warning", "firing"),
        ("critical", "inactive"),
    ]


def test_a_tick_that_is_a_little_early_does_not_cost_a_turn() -> None:
    bench = Bench("groups: [{name: g, interval: 15s, rules: [{record: 'a:b', expr: x}]}]")
    turns = []
    for time in (0, 14.99, 30.01, 44.98, 50, 60):
        bench.at(time, {"a": 1})
        turns.append(bench.evaluator.groups[0].evaluated)
    assert turns == [0, 14.99, 30.01, 44.98, 44.98, 60]


def test_the_rules_view_is_that_of_prometheus() -> None:
    bench = Bench(HIGH)
    bench.at(0, {"a": 9.25})
    (rule,) = bench.evaluator.rules_payload()["groups"][0]["rules"]
    assert rule["state"] == "pending"
    assert (rule["type"], rule["health"], rule["duration"]) == ("alerting", "ok", 60)
    assert rule["alerts"] == bench.evaluator.alerts_payload()
    assert rule["alerts"][0]["value"] == "9.25e+00"
    assert rule["alerts"][0]["activeAt"] == "1970-01-01T00:00:00.000Z"


def test_state_survives_the_death_of_the_process(tmp_path: Path) -> None:
    """for, keep_firing_for and startsAt go on exactly, also where values are no numbers."""
    rules = HIGH.replace("for: 1m", "for: 1m\n            keep_firing_for: 2m")
    path = tmp_path / "state"
    bench = Bench(rules)
    bench.at(0, {"a": math.inf, "b": 9})
    bench.at(60, {"a": math.inf, "b": 9})
    bench.at(75, {"a": math.inf, "b": 1, "c": 9})
    state = State(path)
    kept.save(state, bench.evaluator)
    state.close()

    again = Bench(rules)
    state = State(path)
    assert kept.restore(state, again.evaluator) == []
    state.close()
    assert again.evaluator.alerts_payload() == bench.evaluator.alerts_payload()
    assert again.at(140, {"a": math.inf, "b": 1, "c": 9}) == [("c", "firing")]
    assert again.at(195, {"a": math.inf, "b": 1, "c": 9}) == [("b", "resolved")]
    assert [a.fired_at for a in again.evaluator.alerts()] == [60, 60, 140]


def test_a_kept_record_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    state.put(kept.AREA, {"x": {"rule": ["g", "High"]}, "y": 5})
    bench = Bench(HIGH)
    assert len(kept.restore(state, bench.evaluator)) == 2
    state.close()


def test_rules_may_be_written_with_anchors_and_may_stand_twice() -> None:
    """promtool takes both; the second is for `rules check` to say."""
    groups = parse_rules(
        textwrap.dedent(
            """
            groups:
              - name: g
                rules:
                  - &one {alert: A, expr: x}
                  - {<<: *one, for: 1m}
                  - *one
            """
        )
    )
    assert [(r.name, r.hold) for r in groups[0].rules] == [("A", 0), ("A", 60), ("A", 0)]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{" * 100_000,
        "groups: &a [*a]",
        "? {a: b}\n: c",
        "groups: [{? [x] : y}]",
        "\0",
        "groups:\n- &g {name: a, <<: 5}",
    ],
)
def test_hostile_yaml_is_a_fault(text: str) -> None:
    with pytest.raises(RuleError):
        parse_rules(text)


def test_a_small_file_cannot_be_made_of_millions_of_rules() -> None:
    many = ", ".join(["*r"] * 1000)
    groups = ", ".join(f"{{name: g{i}, rules: *l}}" for i in range(200))
    text = f"groups: [{{name: x, rules: &l [&r {{alert: A, expr: x}}, {many}]}}, {groups}]"
    with pytest.raises(RuleError, match="more than 50000 rules"):
        parse_rules(text)


def test_after_a_restart_data_has_five_minutes_to_come_back() -> None:
    """Even where a vanished series resolves: the sources have yet to be read."""
    rules = HIGH.replace("annotations: {", "annotations: {watchdog_on_missing: resolve, ")
    bench = Bench(rules)
    for time in (0, 60):
        bench.at(time, {"a": 9, "b": 9})
    kept_alerts = bench.evaluator.dump()
    again = Bench(rules)
    again.evaluator.restore(kept_alerts)
    assert again.at(100, {}) == []
    assert again.at(115, {"a": 9}) == []
    assert again.at(130, {}) == [("a", "resolved")], "what was seen again is as ever"
    assert again.at(385, {}) == []
    assert again.at(400, {}) == [("b", "resolved")]
