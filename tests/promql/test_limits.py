"""A query must not take the daemon's memory or its time."""

from __future__ import annotations

import pytest

from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql import Engine, PromQLError
from posttrain_watchdog.promql.frame import Frame
from posttrain_watchdog.promql.selecting import Selecting
from posttrain_watchdog.promql.syntax import MAX_NESTING, MAX_OPERATORS, parse
from posttrain_watchdog.series.store import Store


@pytest.fixture
def engine() -> Engine:
    store = Store()
    metrics = [Metric("m", {"i": str(i)}) for i in range(100)]
    for tick in range(100):
        store.append(15.0 * tick, metrics, [float(tick)] * 100)
    return Engine(store)


@pytest.mark.parametrize(
    "expression",
    [
        "abs(" * MAX_NESTING + "m" + ")" * MAX_NESTING,
        "m" + " + m" * MAX_OPERATORS,
        "m" + " or m" * MAX_OPERATORS,
        "sum_over_time((" * (MAX_NESTING // 2) + "m" + ")[30s:15s])" * (MAX_NESTING // 2),
    ],
    ids=["calls", "sums", "ors", "subqueries"],
)
def test_the_deepest_expression_that_parses_is_evaluated_or_refused(engine: Engine, expression: str) -> None:
    try:
        engine.instant(expression, 1000)
    except PromQLError as error:
        assert "nested too deeply" in error.message


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("sum_over_time(m[1h:1ms])", "subquery has"),
        ("sum_over_time(m[25m:1s])", None),
    ],
)
def test_a_subquery_of_too_many_steps_is_refused(engine: Engine, expression: str, complaint: str | None) -> None:
    if complaint is None:
        assert len(engine.instant(expression, 1485)) == 100  # type: ignore[arg-type]
    else:
        with pytest.raises(PromQLError, match=complaint):
            engine.instant(expression, 1485)


def test_a_range_query_of_too_many_points_is_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PromQLError, match="exceeded maximum resolution"):
        engine.range("m", 0, 11_000, 1)
    monkeypatch.setattr("posttrain_watchdog.promql.engine.POINTS", 5_000)
    assert len(engine.range("m", 0, 735, 15)) == 100
    with pytest.raises(PromQLError, match="result has more than"):
        engine.range("m", 0, 750, 15)
    with pytest.raises(PromQLError, match="result has more than"):
        engine.instant("m[1000s]", 1000)


def test_a_query_that_looks_at_too_much_is_stopped_and_the_next_one_is_not(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posttrain_watchdog.promql.engine.WORK", 50_000)
    with pytest.raises(PromQLError, match="too many samples"):
        engine.range("sum_over_time(m[5m])", 0, 1485, 15)
    assert len(engine.instant("sum_over_time(m[5m])", 1485)) == 100  # type: ignore[arg-type]


def test_steps_far_apart_read_only_their_windows(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    expressions = ("rate(m[1m])", "count_over_time(m[30s] offset 15s)", "sum_over_time(m[1m] @ 300)")
    whole = [engine.range(e, 100, 1400, 400) for e in expressions]
    monkeypatch.setattr("posttrain_watchdog.promql.evaluate.CELLS", 10)
    read: list[int] = []
    samples = Selecting.samples

    def counting(self: Selecting, selector: object, first: int, last: int) -> object:
        found = samples(self, selector, first, last)  # type: ignore[arg-type]
        read.append(found.values.shape[0])
        return found

    monkeypatch.setattr(Selecting, "samples", counting)
    engine.store.mark_stale(1500, [Metric("m", {"i": "0"})])
    assert [engine.range(e, 100, 1400, 400) for e in expressions] == whole
    assert max(read) <= 5


def test_what_depends_on_values_is_not_kept_with_the_series(engine: Engine) -> None:
    query = engine.prepare('m * on (i) group_left () topk(3, m) or count_values by (i) ("v", m)')
    frames: list[Frame] = []
    for tick in range(100, 110):
        engine.store.append(15.0 * tick, [Metric("m", {"i": "0"})], [float(tick)])
        assert len(query.instant(15.0 * tick)) > 3  # type: ignore[arg-type]
        frame = engine._evaluator.selecting.resolve(query.tree.left.left).frame  # type: ignore[union-attr]
        frames.append(frame)
    assert all(frame is frames[0] for frame in frames)
    assert len(frames[0]._memo) < 10


def test_selectors_of_the_same_series_share_what_is_derived_from_their_labels(engine: Engine) -> None:
    selecting = engine._evaluator.selecting
    frames = {id(selecting.resolve(parse(text)).frame) for text in ("m", 'm{i!="x"}', 'm{i=~".+"}')}  # type: ignore[arg-type]
    assert len(frames) == 1


def test_ever_new_selectors_do_not_pile_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posttrain_watchdog.promql.selecting.COLUMNS", 1_000)
    selecting = engine._evaluator.selecting
    for i in range(50):
        assert len(engine.instant(f'm{{i!="{i}"}}', 1000 + i)) == 99  # type: ignore[arg-type]
    assert len(selecting._selected) <= 11
    assert len(selecting._frames) <= 12
