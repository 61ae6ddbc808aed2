"""Unit tests of rules in promtool's format, without Prometheus: `posttrain-watchdog rules test FILE...`.

Promises: a file that passes here passes under `promtool test rules` and the other way round (v2.42 semantics: series
are loaded before each evaluation, only firing alerts are compared, a vanished series resolves). Reads the files;
never touches a clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from posttrain_watchdog.alerting.evaluation import Evaluator
from posttrain_watchdog.alerting.rules import RuleError, RuleSet, duration
from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql.engine import Engine
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.notation import parse_metric, parse_series
from posttrain_watchdog.promql.values import Scalar, Value, Vector
from posttrain_watchdog.series.store import Store, StoreSettings

_FILE_KEYS = {"rule_files", "evaluation_interval", "group_eval_order", "tests", "fuzzy_compare"}
_TEST_KEYS = {
    "interval",
    "input_series",
    "name",
    "alert_rule_test",
    "promql_expr_test",
    "external_labels",
    "external_url",
}
_ALERT_KEYS = {"eval_time", "alertname", "exp_alerts"}
_QUERY_KEYS = {"eval_time", "expr", "exp_samples"}


class TestFileError(ValueError):
    """A test file that cannot be used; the text names the file and what was expected."""

    __test__ = False  # not a class of tests


@dataclass(slots=True)
class FileReport:
    """One test file."""

    path: str
    tests: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """All files."""

    files: list[FileReport] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not any(f.failures for f in self.files)

    def text(self) -> str:
        """What promtool would print, a block a file."""
        lines = []
        for each in self.files:
            lines.append(f"Unit Testing:  {each.path}")
            lines += [f"  FAILED:\n{failure}" for failure in each.failures] or ["  SUCCESS"]
            lines.append("")
        return "\n".join(lines)


def run(paths: Sequence[Path]) -> Report:
    """Runs the tests of every file; a file that cannot be used is a failure of its own."""
    report = Report()
    for path in paths:
        file = FileReport(str(path))
        report.files.append(file)
        try:
            _run_file(path, file)
        except (TestFileError, RuleError) as error:
            file.failures.append(f"    {error}")
    return report


def _mapping(value: Any, known: set[str], path: Path, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TestFileError(f"{path}: expected a mapping for {what}, got {type(value).__name__}")
    unknown = sorted(set(value) - known)
    if unknown:
        raise TestFileError(f"{path}: field {unknown[0]!r} is not known in {what}")
    return value


def _run_file(path: Path, report: FileReport) -> None:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TestFileError(f"{path}: {error.strerror or error}: expected a readable test file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TestFileError(f"{path}: expected YAML: {error}") from None
    top = _mapping(data, _FILE_KEYS, path, "a test file")
    files: list[Path] = []
    for pattern in top.get("rule_files") or []:
        found = sorted(path.parent.glob(pattern)) if not Path(pattern).is_absolute() else [Path(pattern)]
        if not found:
            raise TestFileError(f"{path}: no file matches the pattern {pattern!r} in rule_files")
        files += found
    rules = RuleSet.load(files)
    order = {name: place for place, name in enumerate(top.get("group_eval_order") or [])}
    missing = set(order) - {g.name for g in rules.groups}
    if missing:
        raise TestFileError(f"{path}: group_eval_order names a group that is not there: {sorted(missing)[0]!r}")
    rules = RuleSet(tuple(sorted(rules.groups, key=lambda g: order.get(g.name, len(order)))))
    every = _seconds(top.get("evaluation_interval", "1m"), path)
    for number, each in enumerate(top.get("tests") or [], 1):
        test = _mapping(each, _TEST_KEYS, path, f"test {number}")
        report.tests += 1
        report.failures += _Test(test, rules, every, path, number).run()


def _seconds(text: Any, path: Path) -> float:
    try:
        return duration(text)
    except ValueError as error:
        raise TestFileError(f"{path}: {error}") from None


class _Test:
    """One entry of `tests`."""

    def __init__(self, test: Mapping[str, Any], rules: RuleSet, every: float, path: Path, number: int) -> None:
        self._path = path
        self._name = str(test.get("name") or "")
        self._number = number
        self._every = every or 60.0
        self._store = Store(StoreSettings(max_series=1_000_000, max_points=1 << 40, retention=1e9))
        self._engine = Engine(self._store)
        self._evaluator = Evaluator(
            rules,
            self._engine,
            self._store,
            external_labels=test.get("external_labels") or {},
            external_url=str(test.get("external_url") or ""),
            as_prometheus=True,
        )
        self._alerts = [_mapping(a, _ALERT_KEYS, path, "alert_rule_test") for a in test.get("alert_rule_test") or []]
        self._queries = [_mapping(q, _QUERY_KEYS, path, "promql_expr_test") for q in test.get("promql_expr_test") or []]
        self._samples = self._load(test)
        self._failures: list[str] = []

    def _load(self, test: Mapping[str, Any]) -> dict[float, dict[Metric, float]]:
        """Time -> values of the input series."""
        interval = _seconds(test.get("interval", "1m"), self._path)
        found: dict[float, dict[Metric, float]] = {}
        for series in test.get("input_series") or []:
            given = _mapping(series, {"series", "values"}, self._path, "input_series")
            try:
                metric, values = parse_series(f"{given.get('series', '')} {given.get('values', '')}")
            except PromQLError as error:
                raise TestFileError(f"{self._path}: series {given.get('series')!r}: {error}") from None
            for place, value in enumerate(values):
                if value is not None:
                    found.setdefault(round(place * interval, 3), {})[metric] = value
        return found

    def run(self) -> list[str]:
        times = sorted({_seconds(a["eval_time"], self._path) for a in self._alerts})
        last = max([*times, *(_seconds(q["eval_time"], self._path) for q in self._queries)], default=0.0)
        waiting = sorted(self._samples)
        now = 0.0
        while now <= last:
            while waiting and waiting[0] <= now:
                at = waiting.pop(0)
                self._store.append_values(at, self._samples[at])
            self._evaluator.evaluate(now)
            for time in times:
                if now <= time < now + self._every:
                    self._check_alerts(time)
            now = round(now + self._every, 3)
        for at in waiting:
            if at >= (self._store.last_time or 0.0):
                self._store.append_values(at, self._samples[at])
        for query in self._queries:
            self._check_query(query)
        return self._failures

    def _check_alerts(self, time: float) -> None:
        for wanted in self._alerts:
            if _seconds(wanted["eval_time"], self._path) != time:
                continue
            name = wanted["alertname"]
            got = [
                (dict(a.labels), dict(a.annotations))
                for a in self._evaluator.alerts()
                if a.name == name and a.state == "firing"
            ]
            expected = [
                (
                    {**{k: str(v) for k, v in (e.get("exp_labels") or {}).items()}, "alertname": name},
                    {k: str(v) for k, v in (e.get("exp_annotations") or {}).items()},
                )
                for e in (
                    _mapping(e, {"exp_labels", "exp_annotations"}, self._path, "exp_alerts")
                    for e in wanted.get("exp_alerts") or []
                )
            ]
            if _sorted(got) != _sorted(expected):
                self._fail(f"alertname: {name}, time: {wanted['eval_time']}", _sorted(expected), _sorted(got))

    def _check_query(self, query: Mapping[str, Any]) -> None:
        what = f"expr: {query['expr']!r}, time: {query['eval_time']}"
        try:
            value = self._engine.instant(query["expr"], _seconds(query["eval_time"], self._path))
            got = _samples(value)
            expected = [
                (_labels(parse_metric(str(e.get("labels") or "{}"))), float(e.get("value", 0)))
                for e in query.get("exp_samples") or []
            ]
        except PromQLError as error:
            self._fail(what, "a value", f"error {error}")
            return
        left, right = sorted(got, key=repr), sorted(expected, key=repr)
        same = len(left) == len(right) and all(
            a[0] == b[0] and (math.isclose(a[1], b[1], rel_tol=1e-9) or a[1] == b[1] or (a[1] != a[1] and b[1] != b[1]))
            for a, b in zip(left, right, strict=True)
        )
        if not same:
            self._fail(what, right, left)

    def _fail(self, what: str, expected: object, got: object) -> None:
        head = f"    name: {self._name},\n" if self._name else f"    test {self._number},\n"
        self._failures.append(f"{head}    {what}\n        exp: {expected}\n        got: {got}")


def _sorted(alerts: list[tuple[dict[str, str], dict[str, str]]]) -> list[tuple[list[Any], list[Any]]]:
    return sorted((sorted(labels.items()), sorted(notes.items())) for labels, notes in alerts)


def _labels(metric: Metric) -> tuple[tuple[str, str], ...]:
    name = (("__name__", metric.name),) if metric.name else ()
    return tuple(sorted((*name, *metric.labels)))


def _samples(value: Value) -> list[tuple[tuple[tuple[str, str], ...], float]]:
    if isinstance(value, Scalar):
        return [((), value.value)]
    if isinstance(value, Vector):
        return [(_labels(metric), number) for metric, number in value]
    raise PromQLError("expected an instant vector or a scalar")
