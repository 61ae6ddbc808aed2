"""Steps that arrive in pieces, bounded memory, budgets, and what a daemon without samples loads."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from consistency.toy import Side, Toy

from posttrain_watchdog.consistency.monitor import Monitor, thin
from posttrain_watchdog.consistency.settings import Settings
from posttrain_watchdog.model import Metric, Row
from posttrain_watchdog.vocabulary import CAUSES, METRICS


def value(row: Row, name: str) -> float:
    return row.values[Metric(name)]


def test_a_step_in_several_batches_counts_once() -> None:
    batch = Toy(1, steps=3).run()
    monitor = Monitor()
    for i in range(batch.sequences):
        monitor.observe(batch.select(np.array([i])))
    monitor.flush()
    rows = monitor.rows()
    assert [r.step for r in rows] == [0, 1, 2]
    assert sum(value(r, "posttrain_tokens_compared") for r in rows) == batch.tokens
    assert value(rows[-1], "posttrain_tokens_compared_total") == batch.tokens
    assert monitor.rows() == []
    whole = Monitor()
    whole.observe(batch)
    whole.flush()
    assert [d.cause for d in whole.diagnoses()] == [d.cause for d in monitor.diagnoses()]


def test_every_metric_and_cause_is_in_the_vocabulary() -> None:
    monitor = Monitor()
    monitor.observe(Toy(2, engine=Side(0.9, top_p=0.9)).run())
    monitor.flush()
    for row in monitor.rows():
        for metric in row.values:
            assert metric.name in METRICS
            assert {k for k, _ in metric.labels} <= set(METRICS[metric.name].labels)
    assert {d.cause for d in monitor.diagnoses()} <= set(CAUSES)
    assert all(len(d.first_checks) == 3 for d in monitor.diagnoses())


def test_memory_does_not_grow_with_the_run() -> None:
    settings = Settings(judged_steps=5, history_steps=20)
    monitor = Monitor(settings)
    batch = Toy(3, steps=40).run()
    monitor.observe(batch)
    monitor.flush()
    assert len(monitor._kept) == 5
    assert len(monitor._history.rms) == len(monitor._history.fit_xx) == 20
    assert monitor._history.steps_seen == 40


def test_an_onset_outlives_the_steps_that_showed_it() -> None:
    batch = Toy(4, steps=30, engine=Side(0.9, top_p=0.8)).run()
    monitor = Monitor(Settings(judged_steps=6))
    for _, part in batch.by_step():
        monitor.observe(part)
        monitor.diagnoses()
    monitor.flush()
    assert monitor.diagnoses()[0].cause == "truncated_sampling"
    assert monitor.diagnoses()[0].first_step == 0


def test_a_budget_thins_evenly_and_counts_what_it_left_out() -> None:
    batch = Toy(5, steps=1, sequences=200).run()
    kept = thin(batch, batch.tokens // 4)
    assert kept.tokens < 0.4 * batch.tokens
    assert kept.group is not None
    assert set(kept.group.tolist()) == {0, 1}
    monitor = Monitor(Settings(tokens_per_step=batch.tokens // 4))
    monitor.observe(batch)
    monitor.flush()
    row = monitor.rows()[0]
    skipped = row.values[Metric("posttrain_tokens_skipped_total", {"reason": "budget"})]
    assert skipped + value(row, "posttrain_tokens_compared") == batch.tokens


def test_a_batch_of_nothing_is_no_step_and_no_failure() -> None:
    monitor = Monitor()
    empty = Toy(6, steps=1).run().select(np.array([], np.int64))
    monitor.observe(empty)
    monitor.flush()
    assert monitor.diagnoses() == []


def test_torch_is_loaded_when_tokens_arrive_and_not_before() -> None:
    code = (
        "import sys; from posttrain_watchdog.consistency.monitor import Monitor; m = Monitor(); m.flush();"
        "m.diagnoses(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
