"""The columnar store."""

from __future__ import annotations

import numpy as np
import pytest

from posttrain_watchdog.model import Metric
from posttrain_watchdog.series.matchers import Matcher
from posttrain_watchdog.series.store import ABSENT_BITS, STALE_BITS, OutOfOrderError, Store, StoreSettings


def metrics(n: int, name: str = "m") -> list[Metric]:
    return [Metric(name, {"i": str(i)}) for i in range(n)]


def cells(store: Store, metric: Metric) -> list[float | str]:
    """The whole history of one series, gaps and markers by name."""
    slot = store.index.slot(metric)
    assert slot is not None
    column = store.rows(0, len(store.ticks), np.array([slot]))[:, 0]
    names = {ABSENT_BITS: "absent", STALE_BITS: "stale"}
    return [names.get(int(bits), value) for bits, value in zip(column.view(np.int64), column.tolist(), strict=True)]


def test_samples_come_back_as_written() -> None:
    store = Store()
    a, b = metrics(2)
    store.append(10.0, [a], [1.0])
    store.append(25.0, [a, b], [2.0, 3.0])
    assert store.ticks.tolist() == [10_000, 25_000]
    assert cells(store, a) == [1.0, 2.0]
    assert cells(store, b) == ["absent", 3.0]


def test_a_second_append_at_the_newest_time_adds_to_the_tick() -> None:
    store = Store()
    a, b = metrics(2)
    store.append(10.0, [a], [1.0])
    store.append(10.0, [b], [2.0])
    assert len(store.ticks) == 1
    assert cells(store, a) + cells(store, b) == [1.0, 2.0]


def test_an_older_sample_is_refused_and_says_so() -> None:
    store = Store()
    store.append(10.0, metrics(1), [1.0])
    with pytest.raises(OutOfOrderError, match=r"sample at 9\.000 s, but the newest tick is 10\.000 s"):
        store.append(9.0, metrics(1), [1.0])


def test_a_series_that_its_writer_leaves_out_becomes_stale_once() -> None:
    store = Store()
    a, b = metrics(2)
    other = Metric("other")
    store.append(10.0, [a, b], [1.0, 2.0], writer="scrape")
    store.append(10.0, [other], [9.0], writer="rules")
    for time in (20.0, 30.0):
        store.append(time, [a], [1.0], writer="scrape")
        store.append(time, [other], [9.0], writer="rules")
    assert cells(store, b) == [2.0, "stale", "absent"]
    assert cells(store, other) == [9.0, 9.0, 9.0]


def test_a_writer_that_has_nothing_to_say_changes_nothing() -> None:
    store = Store()
    store.append(10.0, metrics(1), [1.0])
    version = store.version
    store.append(10.0, [], [], writer="rule without alerts")
    store.append(20.0, [], [])
    assert store.version == version
    assert len(store.ticks) == 1


def test_the_series_of_a_writer_that_ends_become_stale() -> None:
    store = Store()
    a, b = metrics(2)
    store.append(10.0, [a], [1.0], writer="old rule")
    store.append(20.0, [b], [1.0], writer="other")
    store.end_writer(20.0, "old rule")
    store.end_writer(20.0, "never written")
    assert cells(store, a) == [1.0, "stale"]
    assert cells(store, b) == ["absent", 1.0]


def test_a_slot_given_to_another_series_forgets_the_first() -> None:
    store = Store(StoreSettings(max_series=2))
    a, b, c = metrics(3)
    store.append(10.0, [a, b], [1.0, 2.0], writer="w")
    store.append(20.0, [b, c], [3.0, 4.0], writer="w")
    assert store.index.slot(a) is None
    assert store.dropped_series == 1
    assert cells(store, b) == [2.0, 3.0]
    assert cells(store, c) == ["absent", 4.0]


def test_the_same_sequence_of_metrics_is_resolved_once() -> None:
    store = Store()
    every = tuple(metrics(3))
    for time in range(5):
        store.append(float(time), every, [time, time + 0.5, time + 1], writer="w")
    assert cells(store, every[2]) == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_history_spans_blocks_of_different_width() -> None:
    store = Store()
    few, many = metrics(3), metrics(200)
    for time in range(70):
        store.append(float(time), few, [float(time)] * 3)
    for time in range(70, 140):
        store.append(float(time), many, [float(time)] * 200)
    assert cells(store, few[0]) == [float(t) for t in range(140)]
    assert cells(store, many[150]) == ["absent"] * 70 + [float(t) for t in range(70, 140)]


def test_the_cap_on_series_drops_the_longest_silent_and_counts() -> None:
    store = Store(StoreSettings(max_series=3))
    old, a, b, new = metrics(4)
    store.append(10.0, [old], [1.0])
    store.append(20.0, [a, b], [1.0, 1.0])
    store.append(30.0, [a, b, new], [2.0, 2.0, 2.0])
    assert store.series == 3
    assert store.dropped_series == 1
    assert store.index.slot(old) is None
    assert cells(store, new) == ["absent", "absent", 2.0]


def test_more_live_series_than_the_cap_are_refused_and_counted() -> None:
    store = Store(StoreSettings(max_series=3))
    store.append(10.0, metrics(5), [1.0] * 5)
    assert store.series == 3
    assert store.dropped_series == 2


def test_the_cap_on_points_drops_the_oldest_block_and_counts() -> None:
    store = Store(StoreSettings(max_points=64 * 10 * 3))
    for time in range(64 * 5):
        store.append(float(time), metrics(10), [1.0] * 10)
    assert store.points <= 64 * 10 * 3
    assert store.dropped_points == 64 * 10 * 2
    assert store.ticks[0] == 128_000


def test_retention_lets_old_blocks_and_their_series_go_uncounted() -> None:
    store = Store(StoreSettings(retention=100.0))
    gone = Metric("gone")
    store.append(0.0, [gone], [1.0])
    for time in range(1, 300):
        store.append(float(time), metrics(1), [1.0])
    assert store.dropped_points == 0
    assert store.index.slot(gone) is None
    assert store.ticks[0] >= 64_000


@pytest.mark.parametrize(
    ("operator", "value", "found"),
    [
        ("=", "a", ["a"]),
        ("=", "", ["none"]),
        ("!=", "a", ["ab", "b", "none"]),
        ("!=", "", ["a", "ab", "b"]),
        ("=~", "a|b", ["a", "b"]),
        ("=~", "a.*", ["a", "ab"]),
        ("=~", ".*", ["a", "ab", "b", "none"]),
        ("!~", "a", ["ab", "b", "none"]),
        ("!~", ".+", ["none"]),
        ("=~", "(?i:A)", ["a"]),
    ],
)
def test_matchers_are_anchored_and_an_absent_label_is_empty(operator: str, value: str, found: list[str]) -> None:
    store = Store()
    store.append(0.0, [Metric(v, {"x": v}) for v in ("a", "b", "ab")] + [Metric("none")], [1.0] * 4)
    chosen = store.metrics(store.select([Matcher("x", operator, value)]))  # type: ignore[arg-type]
    assert sorted(m.name for m in chosen) == found


def test_loading_merges_with_what_is_there() -> None:
    store = Store()
    a, b = metrics(2)
    store.append(20.0, [a], [2.0])
    store.load([(a, [10.0, 30.0], [1.0, 3.0]), (b, [25.0], [9.0])])
    assert store.ticks.tolist() == [10_000, 20_000, 25_000, 30_000]
    assert cells(store, a) == [1.0, 2.0, "absent", 3.0]
    assert cells(store, b) == ["absent", "absent", 9.0, "absent"]
