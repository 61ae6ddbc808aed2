"""Unit tests of rules in promtool's format, without Prometheus: `posttrain-watchdog rules test FILE...`.

Promises: a file that passes here passes under `promtool test rules` and the other way round, and failures read alike
(v2.42 semantics: series are loaded before each evaluation, every group is evaluated at every evaluation interval, only
firing alerts are compared, a vanished series resolves). One departure: values are compared to 1e-9, not to the last
bit, because two engines may add in another order. Reads the files; never touches a clock.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from posttrain_watchdog.alerting.evaluation import Evaluator
from posttrain_watchdog.alerting.rules import RuleError, RuleSet, duration
from posttrain_watchdog.alerting.views import exponent_form
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
_DEFAULT_INTERVAL = 60.0
_MOST_EVALUATIONS = 10_000_000

LabelText = str
Instance = tuple[LabelText, LabelText]
"""Labels and annotations of an alert, written out."""


class TestFileError(ValueError):
    """A test file that cannot be used; the text says what was expected."""

    __test__ = False  # not a class of tests


@dataclass(slots=True)
class FileReport:
    """One test file."""

    path: str
    tests: int = 0
    failures: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


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
            lines += [f"  WARNING: {warning}" for warning in each.warnings]
            lines += ["  FAILED:", *each.failures] if each.failures else ["  SUCCESS"]
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
            file.failures.append(str(error))
    return report


def _mapping(value: Any, known: set[str], what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TestFileError(f"expected a mapping for {what}, got {type(value).__name__}")
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        raise TestFileError(f"field {unknown[0]} not found in {what}: expected one of {', '.join(sorted(known))}")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise TestFileError(f"expected a list for {what}, got {type(value).__name__}")
    return value


def _texts(value: Any, what: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TestFileError(f"expected a mapping for {what}, got {type(value).__name__}")
    return {str(k): _scalar(v) for k, v in value.items()}


def _scalar(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _seconds(value: Any, otherwise: float = 0.0) -> float:
    if value is None:
        return otherwise
    try:
        return duration(value)
    except ValueError as error:
        raise TestFileError(str(error)) from None


def _run_file(path: Path, report: FileReport) -> None:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TestFileError(f"{error.strerror or error}: expected a readable test file") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise TestFileError(f"expected YAML: {error}") from None
    top = _mapping({} if data is None else data, _FILE_KEYS, "a test file")
    files: list[Path] = []
    for pattern in _list(top.get("rule_files"), "rule_files"):
        found = _matching(path.parent, str(pattern))
        if not found:
            report.warnings.append(f"no file match pattern {pattern}")
        files += found
    rules = RuleSet.load(files)
    names = [str(name) for name in _list(top.get("group_eval_order"), "group_eval_order")]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise TestFileError(f"group name repeated in evaluation order: {name}")
    order = {name: place for place, name in enumerate(names)}
    # promtool evaluates every group at every evaluation interval, whatever interval the group has
    groups = [replace(g, interval=None) for g in sorted(rules.groups, key=lambda g: order.get(g.name, 0))]
    every = _seconds(top.get("evaluation_interval")) or _DEFAULT_INTERVAL
    for each in _list(top.get("tests"), "tests"):
        test = _mapping(each, _TEST_KEYS, "a test")
        report.tests += 1
        try:
            report.failures += _Test(test, RuleSet(tuple(groups)), every).run()
        except TestFileError as error:
            report.failures.append(str(error))


def _matching(folder: Path, pattern: str) -> list[Path]:
    path = Path(pattern)
    if path.is_absolute():
        return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    # pathlib knows no way up in a pattern
    while path.parts and path.parts[0] == "..":
        folder, path = folder / "..", Path(*path.parts[1:])
    return sorted(folder.glob(str(path)))


@dataclass(slots=True)
class _AlertCheck:
    name: str
    time: float
    shown: str
    expected: list[Instance]


class _Test:
    """One entry of `tests`."""

    def __init__(self, test: Mapping[str, Any], rules: RuleSet, every: float) -> None:
        self._name = str(test.get("name") or "")
        self._every = every
        self._store = Store(StoreSettings(max_series=1_000_000, max_points=1 << 40, retention=1e9))
        self._engine = Engine(self._store)
        self._evaluator = Evaluator(
            rules,
            self._engine,
            self._store,
            external_labels=_texts(test.get("external_labels"), "external_labels"),
            external_url=_scalar(test.get("external_url")),
            as_prometheus=True,
        )
        self._checks = [_alert_check(a) for a in _list(test.get("alert_rule_test"), "alert_rule_test")]
        self._queries = [
            _mapping(q, _QUERY_KEYS, "promql_expr_test")
            for q in _list(test.get("promql_expr_test"), "promql_expr_test")
        ]
        self._samples = _load(test, every)
        self._failures: list[str] = []

    def run(self) -> list[str]:
        """What failed, in promtool's words."""
        times = sorted({check.time for check in self._checks})
        asked = [_seconds(q.get("eval_time")) for q in self._queries]
        last = max([*times, *asked], default=0.0)
        if last / self._every > _MOST_EVALUATIONS:
            raise TestFileError(f"{last / self._every:.0f} evaluations are more than {_MOST_EVALUATIONS}")
        waiting = sorted(self._samples, reverse=True)
        for number in range(int(last / self._every + 1e-9) + 1):
            now = round(number * self._every, 3)
            while waiting and waiting[-1] <= now:
                at = waiting.pop()
                self._store.append_values(at, self._samples[at])
            self._evaluator.evaluate(now)
            faults = [(s.rule.name, s.error) for g in self._evaluator.groups for s in g.rules if s.health == "err"]
            if faults:
                return [*self._failures, *(f"    rule: {n}, time: {_shown(now)}, err: {e}" for n, e in faults)]
            for check in self._checks:
                if now <= check.time < now + self._every:
                    self._check_alerts(check)
        while waiting:
            at = waiting.pop()
            self._store.append_values(at, self._samples[at])
        for query in self._queries:
            self._check_query(query)
        return self._failures

    def _check_alerts(self, check: _AlertCheck) -> None:
        firing = [a for a in self._evaluator.alerts() if a.name == check.name and a.state == "firing"]
        got = sorted((_label_text(a.labels), _label_text(a.annotations)) for a in firing)
        if got != check.expected:
            head = f"    name: {self._name},\n" if self._name else ""
            self._failures.append(
                f"{head}    alertname: {check.name}, time: {check.shown}, \n"
                f"        exp:{_instances(check.expected)}, \n        got:{_instances(got)}"
            )

    def _check_query(self, query: Mapping[str, Any]) -> None:
        expression, time = _scalar(query.get("expr")), _seconds(query.get("eval_time"))
        what = f'    expr: "{_quoted(expression)}", time: {_shown(time)},'
        try:
            got = _samples(self._engine.instant(expression, time))
        except PromQLError as error:
            self._failures.append(f"{what} err: {error}")
            return
        expected = []
        for each in _list(query.get("exp_samples"), "exp_samples"):
            sample = _mapping(each, {"labels", "value", "histogram"}, "exp_samples")
            text, value = _scalar(sample.get("labels")), sample.get("value", 0)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TestFileError(f"expected a number for value, got {value!r}")
            try:
                expected.append((_metric_text(parse_metric(text) if text.strip() else Metric("")), float(value)))
            except PromQLError as error:
                self._failures.append(f'{what} err: labels "{_quoted(text)}": {error}')
                return
        got.sort()
        expected.sort()
        same = [a[0] for a in got] == [b[0] for b in expected]
        if not same or not all(_equal(a[1], b[1]) for a, b in zip(got, expected, strict=True)):
            self._failures.append(f"{what}\n        exp: {_listed(expected)}\n        got: {_listed(got)}")


def _equal(got: float, expected: float) -> bool:
    # NaN is not even itself, as in promtool
    return got == expected or math.isclose(got, expected, rel_tol=1e-9)


def _alert_check(value: Any) -> _AlertCheck:
    given = _mapping(value, _ALERT_KEYS, "alert_rule_test")
    time = _seconds(given.get("eval_time"))
    name = _scalar(given.get("alertname"))
    if not name:
        raise TestFileError(
            f"an item under alert_rule_test misses required attribute alertname at eval_time {_shown(time)}"
        )
    expected = []
    for each in _list(given.get("exp_alerts"), "exp_alerts"):
        alert = _mapping(each, {"exp_labels", "exp_annotations"}, "exp_alerts")
        labels = {k: v for k, v in _texts(alert.get("exp_labels"), "exp_labels").items() if v}
        notes = _texts(alert.get("exp_annotations"), "exp_annotations")
        expected.append((_label_text({**labels, "alertname": name}), _label_text(notes)))
    return _AlertCheck(name, time, _shown(time), sorted(expected))


def _load(test: Mapping[str, Any], every: float) -> dict[float, dict[Metric, float]]:
    """Time -> values of the input series."""
    interval = _seconds(test.get("interval")) or every
    found: dict[float, dict[Metric, float]] = {}
    for series in _list(test.get("input_series"), "input_series"):
        given = _mapping(series, {"series", "values"}, "input_series")
        try:
            metric, values = parse_series(f"{_scalar(given.get('series'))} {_scalar(given.get('values'))}")
        except PromQLError as error:
            raise TestFileError(f"series {_scalar(given.get('series'))!r}: {error}") from None
        for place, value in enumerate(values):
            if value is not None:
                found.setdefault(round(place * interval, 3), {})[metric] = value
    return found


def _samples(value: Value) -> list[tuple[str, float]]:
    if isinstance(value, Scalar):
        return [("{}", value.value)]
    if isinstance(value, Vector):
        return [(_metric_text(metric), number) for metric, number in value]
    raise PromQLError("rule result is not a vector or scalar")


# --- how promtool writes things


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")


def _label_text(labels: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{k}="{_quoted(v)}"' for k, v in sorted(labels.items())) + "}"


def _metric_text(metric: Metric) -> str:
    return _label_text({**({"__name__": metric.name} if metric.name else {}), **dict(metric.labels)})


def _shown(seconds: float) -> str:
    """A duration as Prometheus' model.Duration writes it: 1m30s."""
    left = round(seconds * 1000)
    if left == 0:
        return "0s"
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts)


def _instances(given: Sequence[Instance]) -> str:
    if not given:
        return "[]"
    each = ",\n".join(
        f"            {place}:\n              Labels:{labels}\n              Annotations:{notes}"
        for place, (labels, notes) in enumerate(given)
    )
    return f"[\n{each}\n            ]"


def _listed(samples: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{labels} {re.sub('e', 'E', exponent_form(value))}" for labels, value in samples) or "nil"
