"""The engine beside a real Prometheus over the same samples."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings
from promql import expressions as draw
from promql.real_prometheus import Prometheus, installed, serving

from posttrain_watchdog.promql import Engine, Matrix, PromQLError, Scalar, Value, Vector
from posttrain_watchdog.series.store import Store, StoreSettings

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not installed(), reason="prometheus and promtool are not installed"),
]
EXAMPLES = int(os.environ.get("WATCHDOG_PROMQL_EXAMPLES", "150"))
PATIENT = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with serving(tmp_path_factory.mktemp("prometheus"), draw.series(SEED)) as server:
        yield server


@pytest.fixture(scope="module")
def engine() -> Engine:
    store = Store(StoreSettings(retention=1e9))
    store.load(draw.series(SEED))
    return Engine(store)


SEED = int(os.environ.get("WATCHDOG_PROMQL_SEED", "1"))


def same(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    # differences of nearly equal numbers keep no more digits than their operands had
    return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b)) or max(abs(a), abs(b)) < 1e-9


def compare(ours: Value, theirs: Value) -> None:
    assert type(ours) is type(theirs)
    if isinstance(ours, Scalar) and isinstance(theirs, Scalar):
        assert same(ours.value, theirs.value)
    elif isinstance(ours, Vector) and isinstance(theirs, Vector):
        a, b = dict(ours.samples), dict(theirs.samples)
        assert sorted(map(repr, a)) == sorted(map(repr, b))
        assert len(ours) == len(a)
        assert [(metric, a[metric], b[metric]) for metric in a if not same(a[metric], b[metric])] == []
    elif isinstance(ours, Matrix) and isinstance(theirs, Matrix):
        a, b = {m: dict(p) for m, p in ours}, {m: dict(p) for m, p in theirs}
        assert sorted(map(repr, a)) == sorted(map(repr, b))
        for metric in a:
            assert sorted(a[metric]) == sorted(b[metric]), metric
            wrong = [(t, a[metric][t], b[metric][t]) for t in a[metric] if not same(a[metric][t], b[metric][t])]
            assert wrong == [], metric


@PATIENT
@given(expression=draw.expressions, time=draw.times)
def test_an_instant_query_gives_what_prometheus_gives(
    prometheus: Prometheus, engine: Engine, expression: str, time: float
) -> None:
    theirs = prometheus.instant(expression, time)
    try:
        ours = engine.instant(expression, time)
    except PromQLError as error:
        assert theirs is None, error
        return
    assert theirs is not None, ours
    compare(ours, theirs)


@PATIENT
@given(expression=draw.expressions, time=draw.times)
def test_a_range_query_gives_what_prometheus_gives(
    prometheus: Prometheus, engine: Engine, expression: str, time: float
) -> None:
    # Prometheus 2.42 loses all steps but the first few where such a function reads a range fixed by @
    per_step = ("predict_linear", "quantile_over_time", "holt_winters")
    assume("@" not in expression or not any(name in expression for name in per_step))
    theirs = prometheus.range(expression, time, time + 600, 37)
    try:
        ours = engine.range(expression, time, time + 600, 37)
    except PromQLError as error:
        assert theirs is None, error
        return
    assert theirs is not None, ours
    compare(ours, theirs)
