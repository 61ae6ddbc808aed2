"""Live values and step windows."""

from __future__ import annotations

import math

import numpy as np

from posttrain_watchdog.model import Metric, Row
from posttrain_watchdog.series.live import LiveSeries

LOSS = Metric("posttrain_trainer_loss")
REWARD = Metric("posttrain_trainer_reward_mean")
HOST = Metric("posttrain_watchdog_series")


def shown(live: LiveSeries) -> dict[str, float]:
    metrics, values = live.snapshot()
    return {repr(m): float(v) for m, v in zip(metrics, values, strict=True)}


def test_a_spike_between_two_scrapes_stays_in_the_window() -> None:
    live = LiveSeries()
    for step in range(30):
        live.add(Row({LOSS: 9.0 if step == 20 else 1.0}, step))
    seen = shown(live)
    assert seen["posttrain_trainer_loss"] == 1.0
    assert seen['posttrain_trainer_loss_window_max{window="20"}'] == 9.0
    assert seen['posttrain_trainer_loss_window_mean{window="20"}'] == (19 + 9) / 20


def test_the_window_forgets_after_its_number_of_steps() -> None:
    live = LiveSeries()
    for step in range(150):
        live.add(Row({LOSS: float(step)}, step))
        if step % 7 == 0:
            live.settle()
    seen = shown(live)
    assert seen['posttrain_trainer_loss_window_min{window="20"}'] == 130.0
    assert seen['posttrain_trainer_loss_window_min{window="100"}'] == 50.0


def test_a_step_told_twice_counts_once_whether_settled_together_or_apart() -> None:
    for apart in (False, True):
        live = LiveSeries()
        for step, value in [(1, 1.0), (2, 2.0), (2, 4.0), (3, 5.0)]:
            live.add(Row({LOSS: value}, step))
            if apart:
                live.settle()
        assert math.isclose(shown(live)['posttrain_trainer_loss_window_mean{window="20"}'], 10 / 3)


def test_keys_that_come_in_different_rows_of_a_step_do_not_disturb_each_other() -> None:
    live = LiveSeries()
    for step in range(5):
        live.add(Row({LOSS: float(step)}, step))
        live.add(Row({REWARD: 10.0 * step}, step))
    seen = shown(live)
    assert seen['posttrain_trainer_loss_window_max{window="20"}'] == 4.0
    assert seen['posttrain_trainer_reward_mean_window_mean{window="20"}'] == 20.0


def test_not_a_number_is_shown_but_stays_out_of_the_window_statistics() -> None:
    live = LiveSeries()
    live.add(Row({LOSS: 1.0}, 1))
    live.add(Row({LOSS: math.nan}, 2))
    seen = shown(live)
    assert math.isnan(seen["posttrain_trainer_loss"])
    assert seen['posttrain_trainer_loss_window_max{window="20"}'] == 1.0


def test_values_without_a_step_have_no_window() -> None:
    live = LiveSeries({"run": "a"})
    live.add(Row({LOSS: 3.0}))
    seen = shown(live)
    assert seen['posttrain_trainer_loss{run="a"}'] == 3.0
    assert math.isnan(seen['posttrain_trainer_loss_window_max{run="a",window="20"}'])


def test_the_list_of_series_is_the_same_object_until_a_series_comes_or_goes() -> None:
    live = LiveSeries()
    live.set(HOST, 1.0)
    first = live.snapshot()[0]
    live.set(HOST, 2.0)
    assert live.snapshot()[0] is first
    live.forget(HOST)
    assert list(live.snapshot()[0]) == []
    live.set(HOST, 3.0)
    assert shown(live) == {"posttrain_watchdog_series": 3.0}


def test_more_series_than_allowed_are_refused_and_counted() -> None:
    live = LiveSeries(max_series=2)
    live.add(Row({Metric("a"): 1.0, Metric("b"): 2.0, Metric("c"): 3.0}, 1))
    assert set(shown(live)) == {"a", "b"}
    assert live.dropped == 1


def test_many_series_grow_the_tables_without_mixing_values() -> None:
    live = LiveSeries()
    metrics = [Metric("posttrain_trainer_value", {"key": str(i)}) for i in range(500)]
    live.add(Row({m: float(i) for i, m in enumerate(metrics)}, 1))
    assert [live.value(m) for m in metrics] == [float(i) for i in range(500)]


def test_counters_add_up() -> None:
    live = LiveSeries()
    live.increment(Metric("posttrain_events_total", {"kind": "xid"}))
    live.increment(Metric("posttrain_events_total", {"kind": "xid"}), 2)
    assert live.value(Metric("posttrain_events_total", {"kind": "xid"})) == 3.0


def test_block_storing_equals_row_by_row() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(260, 2))
    together, apart = LiveSeries(), LiveSeries()
    for step, (a, b) in enumerate(values):
        row = Row({LOSS: float(a), REWARD: float(b)}, step)
        together.add(row)
        apart.add(row)
        apart.settle()
    assert shown(together) == shown(apart)
