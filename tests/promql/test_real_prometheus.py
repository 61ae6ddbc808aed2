"""The engine beside a real Prometheus over the same samples."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from promql import expressions as draw
from promql.real_prometheus import Prometheus, Series, installed, serving

from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql import Engine, Matrix, PromQLError, Scalar, Value, Vector
from posttrain_watchdog.series.store import Store, StoreSettings

Both = tuple[Prometheus, Engine]
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


SEED = int(os.environ.get("WATCHDOG_PROMQL_SEED", "1"))


@pytest.fixture(scope="module", params=["blocks", "head with staleness markers"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """The same samples in a Prometheus and in our store."""
    markers = request.param != "blocks"
    samples = draw.series(SEED, markers)
    store = Store(StoreSettings(retention=1e9))
    store.load(samples)
    with serving(tmp_path_factory.mktemp("prometheus"), samples, remote=markers) as server:
        yield server, Engine(store)


def same(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    # differences of nearly equal numbers keep no more digits than their operands had
    return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b)) or max(abs(a), abs(b)) < 1e-9


def well_conditioned(expression: str) -> bool:
    """Whether a last digit stays a last digit: the remainder of a time by an inexact number magnifies it by 1e9."""
    inexact = ("atan2", "sin", "cos", "tan", "sqrt", "exp", "ln", "log", "^", "/", "stddev", "rate", "deriv")
    return "%" not in expression or "time" not in expression or not any(name in expression for name in inexact)


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
def test_an_instant_query_gives_what_prometheus_gives(both: Both, expression: str, time: float) -> None:
    prometheus, engine = both
    assume(well_conditioned(expression))
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
def test_a_range_query_gives_what_prometheus_gives(both: Both, expression: str, time: float) -> None:
    prometheus, engine = both
    assume(well_conditioned(expression))
    # Prometheus 2.42 loses all steps but the first few where such a function reads a range fixed by @
    per_step = ("predict_linear", "quantile_over_time", "holt_winters")
    assume("@" not in expression or not any(name in expression for name in per_step))
    theirs = prometheus.range(expression, time, time + 600, 37)
    try:
        ours = engine.range(expression, time, time + 600, 37)
    except PromQLError as error:
        assert theirs is None, error
        return
    # of a minus sign Prometheus demands distinct labels over the whole range, we over each step
    assume(theirs is not None or "-(" not in expression)
    assert theirs is not None, ours
    compare(ours, theirs)


FORMS = Path(__file__).resolve().parent.parent / "data" / "promql" / "forms.promql"
# what the parser takes from Prometheus 3 already, and what it does not take at all
NEWER = {
    "g offset 5", "rate(g[5])", "rate(g[300])", 'g{"a"="x"}', '{"g"}', '{"g",a="x"}', "g{'a'='x'}", "5m",
    "double_exponential_smoothing(g[5m],0.5,0.5)",
}  # fmt: skip
REFUSED = {r'g{a=~"\\Qx\\E"}'}


def named_like_keywords(time: float) -> list[Series]:
    """Series whose names and labels the grammar also uses."""
    names = """sum by on bool offset start end inf nan group_left without rate time a:b _x max count quantile ignoring
    job:rule:rate5m""".split()  # noqa: SIM905
    labels = {"a": "x", "on": "1", "by": "2", "sum": "3"}
    return [(Metric(name, labels), [time - 5.0], [float(i)]) for i, name in enumerate(names)]


def test_every_form_of_the_language_means_the_same_or_is_refused_by_both(tmp_path: Path) -> None:
    time = draw.START + 600.0
    samples = draw.series(1) + named_like_keywords(time)
    store = Store(StoreSettings(retention=1e9))
    store.load(samples)
    engine = Engine(store)
    forms = FORMS.read_text().splitlines()
    assert set(forms) >= NEWER | REFUSED
    with serving(tmp_path, samples) as prometheus:
        for form in forms:
            theirs = prometheus.instant(form, time)
            try:
                ours = engine.instant(form, time)
            except PromQLError as error:
                assert theirs is None or form in REFUSED, (form, error)
                continue
            assert (theirs is None) == (form in NEWER), form
            if theirs is not None:
                compare(ours, theirs)
