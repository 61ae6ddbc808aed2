"""Replay's clock."""

from __future__ import annotations

from posttrain_watchdog.model import Event, Metric, Row
from posttrain_watchdog.timeline import STEP_SECONDS, StepClock, timed

LOSS = Metric("posttrain_trainer_loss")


def test_timestamps_of_the_log_win_and_missing_steps_lie_between() -> None:
    clock = StepClock([Row({LOSS: 1.0, STEP_SECONDS: 3.0}, 10, 1000.0), Row({LOSS: 1.0}, 20, 1100.0)])
    assert clock.at(10) == 1000.0
    assert clock.at(15) == 1050.0
    assert clock.at(25) == 1150.0
    assert clock.at(5) == 950.0


def test_without_timestamps_the_reported_durations_add_up() -> None:
    clock = StepClock([Row({STEP_SECONDS: float(s)}, s) for s in (1, 2, 3)])
    assert [clock.at(s) for s in (1, 2, 3)] == [1.0, 3.0, 6.0]


def test_without_any_time_a_step_takes_thirty_seconds() -> None:
    clock = StepClock([Row({LOSS: 1.0}, s) for s in range(1, 4)])
    assert clock.at(3) - clock.at(1) == 60.0


def test_a_run_that_went_back_to_a_checkpoint_keeps_one_time_a_step() -> None:
    rows = [Row({LOSS: 1.0}, s, 100.0 + s) for s in (1, 2, 3)] + [Row({LOSS: 1.0}, s, 500.0 + s) for s in (2, 3, 4)]
    clock = StepClock(rows)
    assert [clock.at(s) for s in (1, 2, 3, 4)] == [101.0, 102.0, 103.0, 504.0]


def test_items_without_time_follow_their_forerunner_and_time_never_runs_back() -> None:
    clock = StepClock([Row({LOSS: 1.0}, 1, 10.0), Row({LOSS: 1.0}, 2, 20.0)])
    items = [Row({LOSS: 1.0}, 2), Event("cuda_oom", "x"), Row({LOSS: 1.0}, 1), Event("xid", "y", time=25.0)]
    assert [t for t, _ in timed(items, clock)] == [20.0, 20.0, 20.0, 25.0]
