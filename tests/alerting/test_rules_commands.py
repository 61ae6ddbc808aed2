# ruff: noqa: E501 - cases are read side by side
"""`rules test` and `rules check` agree with promtool: what passes here passes there, what fails here fails there."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from posttrain_watchdog.alerting.check import check
from posttrain_watchdog.alerting.unit_tests import run

RULES = """
groups:
  - name: g
    interval: 5m
    limit: 10
    rules:
      - {record: "a:b", expr: "x + 1", labels: {by: rule}}
      - alert: A
        expr: x > 5
        for: 2m
        keep_firing_for: 1m
        labels: {severity: "{{ if gt $value 8.0 }}critical{{ else }}warning{{ end }}", from: "{{ $externalLabels.c }}"}
        annotations: {s: '{{ $labels.a }} {{ $value | humanize }} {{ with query "x" }}{{ . | first | value }}{{ end }}'}
      - {alert: Now, expr: "a:b > 5", annotations: {watchdog_on_missing: keep, watchdog_resolve_expr: "x < 3"}}
  - name: h
    rules:
      - {alert: Twice, expr: y > 0, labels: {a: same}}
      - {alert: Chain, expr: 'ALERTS{alertname="Now", alertstate="firing"} and on () ALERTS_FOR_STATE'}
"""
X = "{series: 'x{a=\"b\"}', values: '1 9 9 9 1 1 _ 9x10'}"
NOW = "exp_labels: {a: b, by: rule}, exp_annotations: {watchdog_on_missing: keep, watchdog_resolve_expr: 'x < 3'}"
FIRED = "exp_labels: {severity: critical, a: b}, exp_annotations: {s: b 9 9}"


def alerts(time: str, name: str, expected: str) -> str:
    return f"{{interval: 1m, input_series: [{X}], alert_rule_test: [{{eval_time: {time}, alertname: {name}, {expected}}}]}}"


def asks(expr: str, samples: str, series: str = X, time: str = "3m") -> str:
    query = f"{{expr: '{expr}', eval_time: {time}, exp_samples: [{samples}]}}"
    return f"{{interval: 1m, input_series: [{series}], promql_expr_test: [{query}]}}"


TESTS = {
    "not yet": alerts("2m", "A", "exp_alerts: []"),
    "fires": alerts("3m", "A", f"exp_alerts: [{{{FIRED}}}]"),
    "fires, but not expected": alerts("3m", "A", "exp_alerts: []"),
    "between evaluations": alerts("3m59s", "A", f"exp_alerts: [{{{FIRED}}}]"),
    "kept firing": alerts("4m", "A", f"exp_alerts: [{{{FIRED}}}]"),
    "kept no longer": alerts("5m", "A", "exp_alerts: []"),
    "annotations missing": alerts("3m", "A", "exp_alerts: [{exp_labels: {severity: critical, a: b}}]"),
    "labels differ": alerts("3m", "A", "exp_alerts: [{exp_labels: {severity: warning, a: b}, exp_annotations: {s: b 9 9}}]"),
    "twice expected": alerts("3m", "A", f"exp_alerts: [{{{FIRED}}}, {{{FIRED}}}]"),
    "from the recorded series": alerts("1m", "Now", f"exp_alerts: [{{{NOW}}}]"),
    "resolves below the limit": alerts("4m", "Now", "exp_alerts: []"),
    "resolves when the series ends": alerts("6m", "Now", "exp_alerts: []"),
    "nothing of that name": alerts("1m", "Nothing", "exp_alerts: []"),
    "no expectation": alerts("1m", "Now", "exp_alerts: "),
    "external labels": alerts("3m", "A", f"exp_alerts: [{{{FIRED.replace('a: b', 'a: b, from: z')}}}]").replace(
        "{interval", "{external_labels: {c: z}, external_url: 'http://u', name: n, interval"
    ),
    "query": asks('x{a="b"}', "{labels: 'x{a=\"b\"}', value: 9}"),
    "query of a recording": asks("a:b", "{labels: 'a:b{a=\"b\",by=\"rule\"}', value: 10}"),
    "query with another name": asks("x", "{labels: 'z{a=\"b\"}', value: 9}"),
    "query with another value": asks("x", "{labels: 'x{a=\"b\"}', value: 9.001}"),
    "query with too few samples": asks("x", ""),
    "query of a scalar": asks("1 + 1", "{value: 2}"),
    "query of a string": asks('"a"', ""),
    "query of a range": asks("x[5m]", ""),
    "query that does not parse": asks("sum(", ""),
    "query for NaN": asks("x / 0 * 0", "{labels: '{a=\"b\"}', value: .nan}"),
    "query for infinity": asks("x / 0", "{labels: '{a=\"b\"}', value: .inf}"),
    "query of a gap": asks("x", "", time="1h"),
    "query after stale": asks("x", "", series="{series: x, values: '1 2 stale'}"),
    "query of alerts": asks("count(ALERTS)", "{labels: '{}', value: 2}"),
    # with an external label, because Prometheus writes a label's unexpanded template into ALERTS where it expands to nothing
    "query of the state": asks("ALERTS_FOR_STATE{alertname=\"A\"}", "{labels: 'ALERTS_FOR_STATE{alertname=\"A\",a=\"b\",from=\"z\",severity=\"critical\"}', value: 60}").replace("{interval", "{external_labels: {c: z}, interval"),
    "labels that do not parse": asks("x", "{labels: '5', value: 9}"),
    "series that do not parse": asks("x", "", series="{series: 'x{', values: '1'}"),
    "values that do not parse": asks("x", "", series="{series: x, values: '1 b'}"),
    "one label set twice": "{interval: 1m, input_series: [{series: 'y{a=\"1\"}', values: '1'}, {series: 'y{a=\"2\"}', values: '1'}], alert_rule_test: [{eval_time: 0s, alertname: A}]}",
    "no alert name": "{interval: 1m, alert_rule_test: [{eval_time: 1m}]}",
    "no expression": "{interval: 1m, promql_expr_test: [{eval_time: 1m}]}",
    "unknown field": "{interval: 1m, whatever: 1}",
    "unknown field of a sample": asks("x", "{label: x, value: 1}"),
    "bad duration": "{interval: 1 minute}",
    "nothing": "{}",
}  # fmt: skip
HEADS = {
    "order": ("group_eval_order: [h, g]", "{}"),
    "order with a name that is not there": ("group_eval_order: [zz]", "{}"),
    "order with a name twice": ("group_eval_order: [g, g]", "{}"),
    "seconds": ("evaluation_interval: 15s", alerts("3m15s", "A", f"exp_alerts: [{{{FIRED}}}]")),
    "unknown field": ("evaluation: 15s", "{}"),
    "no such file": ("rule_files: [nothing*.yml]", "{}"),
    "file above": ("rule_files: [../here/rules.y*]", TESTS["fires"]),
}
GROUP = "groups: [{{name: g, rules: [{}]}}]"
RULE_FILES = {
    "empty": "",
    "no groups": "groups: []",
    "only names": "groups: [{name: g}]",
    "the rules above": RULES,
    "unknown key": "group: []",
    "unknown group key": "groups: [{name: g, rulez: []}]",
    "unknown rule key": GROUP.format("{alert: A, expr: x, fo: 1m}"),
    "no name": "groups: [{rules: []}]",
    "name twice": "groups: [{name: g}, {name: g}]",
    "neither alert nor record": GROUP.format("{expr: x}"),
    "both alert and record": GROUP.format("{alert: A, record: b, expr: x}"),
    "no expression": GROUP.format("{alert: A}"),
    "broken expression": GROUP.format("{alert: A, expr: 'x >'}"),
    "unknown function": GROUP.format("{alert: A, expr: 'nothing(x)'}"),
    "wrong type": GROUP.format("{alert: A, expr: 'rate(x)'}"),
    "string expression": GROUP.format("{alert: A, expr: '\"a\"'}"),
    "range expression": GROUP.format("{alert: A, expr: 'x[5m]'}"),
    "durations": GROUP.format("{alert: A, expr: x, for: 1h30m, keep_firing_for: 100ms}"),
    "zero": GROUP.format("{alert: A, expr: x, for: 0}"),
    "days and weeks": GROUP.format("{alert: A, expr: x, for: 1w2d}"),
    "fraction": GROUP.format("{alert: A, expr: x, for: 1.5m}"),
    "number": GROUP.format("{alert: A, expr: x, for: 5}"),
    "wrong order": GROUP.format("{alert: A, expr: x, for: 5m1h}"),
    "negative": GROUP.format("{alert: A, expr: x, for: -5m}"),
    "recording with for": GROUP.format("{record: a, expr: x, for: 5m}"),
    "recording with annotations": GROUP.format("{record: a, expr: x, annotations: {a: b}}"),
    "recording with a bad name": GROUP.format("{record: a-b, expr: x}"),
    "bad label name": GROUP.format("{alert: A, expr: x, labels: {a-b: c}}"),
    "name as a label": GROUP.format("{alert: A, expr: x, labels: {__name__: c}}"),
    "bad annotation name": GROUP.format("{alert: A, expr: x, annotations: {a.b: c}}"),
    "broken template": GROUP.format("{alert: A, expr: x, annotations: {a: '{{ $labels.x '}}"),
    "undefined variable": GROUP.format("{alert: A, expr: x, annotations: {a: '{{ $nothing }}'}}"),
    "undefined function": GROUP.format("{alert: A, expr: x, labels: {a: '{{ nothing }}'}}"),
    "limit": "groups: [{name: g, limit: 5}]",
    "limit that is text": "groups: [{name: g, limit: five}]",
    "interval": "groups: [{name: g, interval: 5x}]",
    "same rule twice": GROUP.format("{alert: A, expr: x}, {alert: A, expr: x}"),
    "anchors": "groups: [{name: g, rules: [&a {alert: A, expr: x}, {<<: *a, alert: B}]}]",
    "rules as a mapping": "groups: [{name: g, rules: {}}]",
    "groups as text": "groups: x",
    "number as a label": GROUP.format("{alert: A, expr: x, labels: {a: 5}}"),
    "list as a label": GROUP.format("{alert: A, expr: x, labels: {a: [5]}}"),
    "key twice": "groups: [{name: g, name: h}]",
    "not YAML": "groups: [",
}


def promtool(*arguments: str) -> bool:
    return subprocess.run(["promtool", *arguments], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def test_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("rules") / "here"
    folder.mkdir()
    (folder / "rules.yml").write_text(RULES)
    files = {}
    texts = {name: ("", case) for name, case in TESTS.items()} | {f"head: {n}": case for n, case in HEADS.items()}
    for number, (name, (head, case)) in enumerate(texts.items()):
        files[name] = folder / f"t{number}.yml"
        own = "" if head.startswith("rule_files") else "rule_files: [rules.yml]\n"
        files[name].write_text(f"{own}{head}\ntests: [{case}]\n")
    return files


@pytest.mark.real
def test_unit_tests_pass_and_fail_as_they_do_in_promtool(test_files: dict[str, Path]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    with ThreadPoolExecutor(4) as pool:
        theirs = dict(
            zip(test_files, pool.map(lambda p: promtool("test", "rules", str(p)), test_files.values()), strict=True)
        )
    ours = {name: run([path]).ok for name, path in test_files.items()}
    assert ours == theirs
    assert 12 < sum(ours.values()) < len(ours) - 12, "both kinds must be among them"


@pytest.mark.real
def test_failures_read_as_promtools_do(test_files: dict[str, Path]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    for name in ("fires, but not expected", "labels differ", "query with another name", "query with too few samples"):
        path = str(test_files[name])
        theirs = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
        assert run([Path(path)]).text().split("\n", 1)[1].strip() == theirs.stderr.strip(), name


@pytest.mark.real
def test_rule_files_are_taken_and_refused_as_promtool_does(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    files = {}
    for number, (name, text) in enumerate(RULE_FILES.items()):
        files[name] = tmp_path / f"r{number}.yml"
        files[name].write_text(text)
    with ThreadPoolExecutor(4) as pool:
        theirs = dict(zip(files, pool.map(lambda p: promtool("check", "rules", str(p)), files.values()), strict=True))
    ours = {name: not any(f.severity == "error" for f in check([path])[0]) for name, path in files.items()}
    assert ours == theirs


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("{alert: A, expr: posttrain_importance_ratio_meen > 1}", "unknown metric 'posttrain_importance_ratio_meen'; did you mean 'posttrain_importance_ratio_mean'?"),
        ("{alert: A, expr: 'posttrain_diagnosis_confidence{cuase=\"x\"} > 1'}", "metric 'posttrain_diagnosis_confidence' has no label 'cuase'; did you mean 'cause'?"),
        ("{alert: A, expr: 'posttrain_diagnosis_confidence{cause=\"stale_weight\"} > 1'}", "unknown cause 'stale_weight'; did you mean 'stale_weights'?"),
        ("{alert: A, expr: 'max by (rum) (posttrain_run_step) > 1'}", "no series of the expression has the label 'rum'; did you mean 'run'?"),
        ("{alert: A, expr: posttrain_run_step > 1, annotations: {s: '{{ query \"posttrain_run_stop\" }}'}}", "s: unknown metric 'posttrain_run_stop'; did you mean 'posttrain_run_step'?"),
        ("{alert: A, expr: posttrain_run_step > 1, annotations: {watchdog_resolve_expr: 'xyz < 1'}}", "watchdog_resolve_expr: unknown metric 'xyz'"),
        ("{alert: A, expr: posttrain_run_step > 1}, {alert: A, expr: posttrain_run_step > 2}", "with the same labels stands at"),
    ],
)  # fmt: skip
def test_rules_that_would_never_fire_are_told(tmp_path: Path, rule: str, expected: str) -> None:
    path = tmp_path / "r.yml"
    path.write_text(f"groups: [{{name: g, rules: [{rule}]}}]\n")
    findings, _ = check([path])
    assert [f.severity for f in findings] == ["warning"], findings
    assert expected in findings[0].message
    assert str(findings[0]).startswith(f"{path}:1: warning: rule 'A'")


def test_what_rules_make_themselves_is_known(tmp_path: Path) -> None:
    path = tmp_path / "r.yml"
    rules = [
        {"record": "own:steps", "expr": "max by (run) (posttrain_run_step)"},
        {"alert": "A", "expr": 'own:steps{whatever="x"} > 1 and on (run) ALERTS{alertname="B"}'},
        {"alert": "B", "expr": 'count by (v) (label_replace(posttrain_run_step, "v", "$1", "run", "(.*)")) > 1'},
        {"alert": "C", "expr": 'count_values by (run) ("v", posttrain_run_step) > 1'},
        {"alert": "D", "expr": '{__name__=~"posttrain_.*", odd="1"} > 1'},
    ]
    path.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    assert check([path]) == ([], 5)


@pytest.mark.parametrize("text", ["\xff", "[" * 5000, "tests: 5", "tests: [5]", "- a", "tests: [{input_series: {}}]"])
def test_a_test_file_that_cannot_be_used_is_a_failure(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.yml"
    path.write_bytes(text.encode("latin-1"))
    report = run([path, tmp_path / "nowhere.yml"])
    assert [len(f.failures) for f in report.files] == [1, 1]
    assert "FAILED" in report.text()
