"""What the other rooms rely on."""

from __future__ import annotations

import math

import pytest

from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql.engine import Engine, EngineSettings
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.inspect import names, selectors
from posttrain_watchdog.promql.values import Matrix, Scalar, String, Vector
from posttrain_watchdog.series.store import Store

RATIO = Metric("ratio_mean", {"engine": "a"})
OTHER = Metric("ratio_mean", {"engine": "b"})
KL = Metric("kl", {"engine": "a"})


@pytest.fixture
def store() -> Store:
    store = Store()
    for i in range(21):
        store.append(1000.0 + 15 * i, [RATIO, OTHER, KL], [1.0 + 0.1 * i, 1.0, 0.01])
    return store


def values(result: object) -> list[tuple[str, float]]:
    assert isinstance(result, Vector)
    return [(repr(metric), value) for metric, value in result]


def test_a_threshold_keeps_only_what_is_over_it(store: Store) -> None:
    assert values(Engine(store).instant("ratio_mean > 1.2", 1300)) == [('ratio_mean{engine="a"}', 3.0)]


def test_each_kind_of_expression_gives_its_own_type(store: Store) -> None:
    engine = Engine(store)
    assert engine.instant("1 + 1", 5) == Scalar(2.0, 5.0)
    assert engine.instant('"text"', 5) == String("text", 5.0)
    assert isinstance(engine.instant("kl[30s]", 1300), Matrix)
    assert len(engine.instant("kl[30s]", 1300).series[0][1]) == 3  # type: ignore[union-attr]


def test_windows_are_closed_on_the_left_by_default_and_half_open_as_in_3(store: Store) -> None:
    old, new = Engine(store), Engine(store, EngineSettings(windows="3.x"))
    assert values(old.instant("count_over_time(kl[30s])", 1300)) == [('{engine="a"}', 3.0)]
    assert values(new.instant("count_over_time(kl[30s])", 1300)) == [('{engine="a"}', 2.0)]
    assert len(old.instant("kl", 1600)) == 1  # type: ignore[arg-type]
    assert len(new.instant("kl", 1600)) == 0  # type: ignore[arg-type]


def test_subqueries_follow_the_same_setting(store: Store) -> None:
    old, new = Engine(store), Engine(store, EngineSettings(windows="3.x"))
    assert values(old.instant("count_over_time(kl[30s:15s])", 1290)) == [('{engine="a"}', 3.0)]
    assert values(new.instant("count_over_time(kl[30s:15s])", 1290)) == [('{engine="a"}', 2.0)]


def test_a_prepared_query_sees_series_that_come_later(store: Store) -> None:
    query = Engine(store).prepare("count(ratio_mean)")
    assert values(query.instant(1300)) == [("", 2.0)]
    store.append(1300.0, [Metric("ratio_mean", {"engine": "c"})], [5.0])
    assert values(query.instant(1300)) == [("", 3.0)]


def test_a_range_query_gives_every_step(store: Store) -> None:
    result = Engine(store).range("sum(ratio_mean)", 1000, 1060, 30)
    assert [(t, round(v, 6)) for t, v in result.series[0][1]] == [(1000.0, 2.0), (1030.0, 2.2), (1060.0, 2.4)]


def test_a_range_query_in_pieces_is_the_same_as_in_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    expression = "rate(ratio_mean[1m]) or ratio_mean @ end() or sum_over_time(kl[1m:20s] @ start())"
    whole = Engine(store).range(expression, 1000, 1300, 7)
    monkeypatch.setattr("posttrain_watchdog.promql.engine.CELLS", 9)
    assert Engine(store).range(expression, 1000, 1300, 7) == whole


def test_an_instant_query_agrees_with_each_step_of_a_range_query(store: Store) -> None:
    engine = Engine(store)
    expression = "topk(1, ratio_mean - on(engine) group_left kl) or deriv(ratio_mean[2m])"
    for metric, points in engine.range(expression, 950, 1700, 25):
        for time, value in points:
            assert dict(engine.instant(expression, time))[metric] == pytest.approx(value)  # type: ignore[call-overload]


def test_scalar_of_nothing_is_nan(store: Store) -> None:
    result = Engine(store).instant("scalar(nothing)", 1300)
    assert isinstance(result, Scalar)
    assert math.isnan(result.value)


def test_the_names_and_matchers_of_an_expression() -> None:
    expression = 'rate(a{x="1"}[5m]) / on(x) b > bool ignoring(y) {__name__=~"c.*",z!="2"}'
    assert names(expression) == ["a", "b"]
    assert [(name, [str(m) for m in matchers]) for name, matchers in selectors(expression)] == [
        ("a", ['x="1"']),
        ("b", []),
        (None, ['z!="2"']),
    ]


@pytest.mark.parametrize("expression", ["sum(", "rate(x)", "x[5m] + 1", "nope(x)", "x{a=~'('}", "x &", '"open'])
def test_what_does_not_parse_says_where(expression: str, store: Store) -> None:
    with pytest.raises(PromQLError) as caught:
        Engine(store).instant(expression, 0)
    assert caught.value.line == 1
    assert caught.value.column is not None
