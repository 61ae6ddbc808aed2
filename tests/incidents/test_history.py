"""Tracks and history: bounded, ordered, later values win."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from incidents.course import row

from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.track import HEAD, KEPT, Track
from posttrain_watchdog.model import Event, Metric, Row


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(allow_nan=False)), max_size=120))
def test_steps_ascend_and_the_later_value_wins(points: list[tuple[int, float]]) -> None:
    track = Track()
    for at, value in points:
        track.put(float(at), value)
    expected = dict(points)
    assert track.at.tolist() == sorted(map(float, expected))
    assert track.read.tolist() == [expected[int(at)] for at in track.at]
    at, read = track.finite()
    assert len(at) == len(read) == sum(map(math.isfinite, expected.values()))


def test_memory_is_bounded_and_the_start_is_kept() -> None:
    track = Track()
    for step in range(10 * KEPT):
        track.put(float(step), 1.0 if step < HEAD else 2.0)
    assert len(track) <= KEPT * 9 // 8
    assert [value for _, value in track.head] == [1.0] * HEAD
    history = History()
    for n in range(5000):
        history.row(Row({Metric("posttrain_trainer_value", {"key": str(n)}): 1.0}, n))
        history.event(Event("traceback", "x", {}, n))
    assert len(list(history.tracks("posttrain_trainer_value"))) <= 2048
    assert len(history.events("traceback")) <= 512
    assert history.counts["traceback"] == 5000


def test_what_comes_after_the_resumed_step_is_taken_back() -> None:
    history = History()
    for step in range(1, 11):
        history.row(row(step, 60.0 * step, grad_norm=math.nan if step > 8 else 0.3))
    history.event(Event("resumed", "Resuming from checkpoint-7", {}, 7, 700.0))
    assert history.trainer("grad_norm").at.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert history.step == 7
    history.row(row(8, 760.0, grad_norm=0.3))
    assert history.step == 8


def test_rows_of_tokens_do_not_turn_the_count_of_the_log_back() -> None:
    history = History()
    for step in range(1, 20):
        history.row(row(step, grad_norm=0.3))
        history.row(Row({Metric("posttrain_kl_k3"): 1e-4}, step - 1))
    assert history.step == 19
    assert history.breaks == []
    assert len(history.track("posttrain_kl_k3")) == 19
