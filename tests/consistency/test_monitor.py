"""Steps that arrive in pieces, bounded memory, budgets, and what a daemon without samples loads."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from consistency.toy import Side, Toy

from posttrain_watchdog.consistency.monitor import Monitor, thin
from posttrain_watchdog.consistency.settings import Settings
from posttrain_watchdog.model import Metric, Row, TokenBatch
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


def attempt(number: int, first: int, last: int, scale: float) -> list[TokenBatch]:
    """Steps of one attempt, whose two sides differ by `scale`."""
    found = []
    for step, part in Toy(3, steps=last + 1).run().by_step():
        if step >= first:
            copy = part.select(np.arange(part.sequences))
            copy.trainer_logprobs = (copy.engine_logprobs - scale).astype(np.float32)
            copy.lineage, copy.attempt = "/logs", number
            found.append(copy)
    return found


def test_a_step_that_a_resumed_run_did_again_counts_as_it_was_done_last() -> None:
    before, after = attempt(1, 0, 9, 0.5), attempt(2, 6, 11, 0.01)
    monitor, alone = Monitor(), Monitor()
    for batch in [*before, *after]:
        monitor.observe(batch)
    for batch in [*before[:6], *after]:
        alone.observe(batch)
    monitor.flush()
    alone.flush()
    again = {r.step: value(r, "posttrain_tokens_compared") for r in monitor.rows()}
    assert again == {r.step: value(r, "posttrain_tokens_compared") for r in alone.rows()}
    assert monitor.diagnoses() == alone.diagnoses()


def test_steps_that_the_resumed_run_has_not_reached_are_of_a_policy_that_is_gone() -> None:
    before, after = attempt(1, 0, 9, 0.5), attempt(2, 6, 7, 0.01)
    monitor, alone = Monitor(), Monitor()
    # the newer files may be found first, and the older ones may go on for a while
    for batch in [*before[:7], *after, *before[7:]]:
        monitor.observe(batch)
    for batch in [*before[:6], *after]:
        alone.observe(batch)
    monitor.flush()
    alone.flush()
    assert monitor.diagnoses() == alone.diagnoses()


def test_a_file_that_was_written_anew_takes_the_place_of_what_it_said() -> None:
    monitor = Monitor()
    old, new = attempt(0, 3, 3, 0.5)[0], attempt(0, 3, 3, 0.01)[0]
    other = attempt(0, 3, 3, 0.02)[0]
    new.reading = 1
    for batch in (old, new, other):  # another rank's file of the same step, read once
        monitor.observe(batch)
    monitor.flush()
    (row,) = monitor.rows()
    assert value(row, "posttrain_tokens_compared") == new.tokens + other.tokens
    assert value(row, "posttrain_logprob_difference_abs_max") < 0.1


def test_runs_of_other_folders_do_not_compete() -> None:
    monitor = Monitor()
    one, two = attempt(1, 3, 3, 0.5)[0], attempt(2, 3, 3, 0.01)[0]
    two.lineage = "/elsewhere"
    for batch in (two, one):
        monitor.observe(batch)
    monitor.flush()
    assert value(monitor.rows()[0], "posttrain_tokens_compared") == one.tokens + two.tokens


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
