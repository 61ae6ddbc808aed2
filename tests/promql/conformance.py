"""Runs Prometheus' own language tests over the engine: `python tests/promql/conformance.py DIR`.

Prints each case that fails and, as the last line, `N of M cases pass`.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql.engine import Engine
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.notation import parse_number, parse_series, take_metric
from posttrain_watchdog.promql.values import Scalar, String, Vector
from posttrain_watchdog.series.store import Store, StoreSettings

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?")
_EVAL = re.compile(r"eval(_ordered|_fail)?\s+instant\s+(?:at\s+(\S+))?\s+(.+)")


@dataclass
class Case:
    """One `eval`, with the storage that the statements before it made."""

    file: str
    line: int
    mode: str
    at: float
    expression: str
    expected: list[str]
    loads: list[tuple[float, list[str]]]


def seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        return float(text)
    hours, minutes, whole, thousandths = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + whole + thousandths / 1000


def cases(path: Path) -> Iterator[Case]:
    loads: list[tuple[float, list[str]]] = []
    statement: tuple[int, str] | None = None
    body: list[str] = []

    def finish() -> Iterator[Case]:
        nonlocal loads
        if statement is None:
            return
        number, text = statement
        if text == "clear":
            loads = []
        elif text.startswith("load"):
            loads = [*loads, (seconds(text.split()[1]), list(body))]
        else:
            match = _EVAL.fullmatch(text)
            assert match is not None, f"{path.name}:{number}: {text}"
            mode, at, expression = match.groups()
            yield Case(path.name, number, mode or "", seconds(at or "0s"), expression, list(body), loads)

    for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = raw.rstrip()
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0] in " \t":
            body.append(line.strip())
            continue
        yield from finish()
        statement, body = (number, line), []
    yield from finish()


def load(loads: list[tuple[float, list[str]]]) -> Store:
    store = Store(StoreSettings(retention=1e9))
    series: list[tuple[Metric, list[float], list[float]]] = []
    for interval, lines in loads:
        for line in lines:
            metric, values = parse_series(line)
            there = [(i * interval, v) for i, v in enumerate(values) if v is not None]
            series.append((metric, [t for t, _ in there], [v for _, v in there]))
    if series:
        store.load(series)
    return store


def close(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def check(case: Case, store: Store) -> str | None:
    """None where the case passes, else what is wrong."""
    try:
        result = Engine(store).instant(case.expression, case.at)
    except PromQLError as error:
        return None if case.mode == "_fail" else f"error: {error}"
    if case.mode == "_fail":
        return f"expected an error, got {result}"
    if isinstance(result, Scalar):
        return None if case.expected and close(result.value, parse_number(case.expected[0])) else f"got {result.value}"
    if isinstance(result, String):
        return "got a string"
    assert isinstance(result, Vector)
    wanted: list[tuple[Metric, float]] = []
    for line in case.expected:
        metric, rest = take_metric(line)
        wanted.append((metric, parse_number(rest.strip())))
    got = list(result)
    if case.mode != "_ordered":
        got.sort(key=lambda sample: (sample[0].name, sample[0].labels))
        wanted.sort(key=lambda sample: (sample[0].name, sample[0].labels))
    same = len(got) == len(wanted) and all(a[0] == b[0] and close(a[1], b[1]) for a, b in zip(got, wanted, strict=True))
    return None if same else f"wanted {wanted}, got {got}"


def run(folder: Path) -> tuple[int, int, list[str]]:
    """(passed, all, one line for each failure)."""
    passed = total = 0
    failures = []
    for path in sorted(folder.glob("*.test")):
        store, loaded = Store(), None
        for case in cases(path):
            if case.loads is not loaded:
                store, loaded = load(case.loads), case.loads
            total += 1
            wrong = check(case, store)
            if wrong is None:
                passed += 1
            else:
                failures.append(f"{case.file}:{case.line}: {case.expression}: {wrong}")
    return passed, total, failures


if __name__ == "__main__":
    passed, total, failures = run(Path(sys.argv[1]))
    for failure in failures:
        print(failure)
    print(f"{passed} of {total} cases pass")
    sys.exit(passed != total)
