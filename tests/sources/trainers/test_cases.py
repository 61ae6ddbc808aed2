"""Trainer logs rebuilt from public reports: every step there once, with the values that a person reads in them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.detection import Follower
from posttrain_watchdog.vocabulary.trainer import PREFIX

Step = tuple[int | None, dict[str, float]]


def read(path: Path) -> tuple[str, list[Step], list[tuple[str, int | None]]]:
    """(dialect, rows, events)"""
    follower = Follower()
    items = [i for raw in path.read_bytes().split(b"\n") for i in follower.feed(raw.decode("utf-8", "replace"))]
    items += follower.close()
    rows = [
        (r.step, {(dict(m.labels).get("key") or m.name.removeprefix(PREFIX)): v for m, v in r.values.items()})
        for r in items
        if isinstance(r, Row)
    ]
    return follower.dialect, rows, [(i.kind, i.step) for i in items if isinstance(i, Event)]


@pytest.mark.parametrize(
    ("log", "dialect", "steps"),
    [
        ("O01-trl-sequence-sum/train.log", "trl", range(1, 11)),
        ("O05-gptoss-pearson/ray.log", "verl", range(1, 5)),
        ("O06-ms-swift-dead-run/logging.jsonl.txt", "ms_swift", range(300, 309)),
        ("O07-oom-in-logprob/ray.log", "verl", range(12, 14)),
        ("O10-zero-std-groups/train.log", "trl", range(1, 7)),
        ("O13-critic-failure/train.log", "verl", range(1, 11)),
        ("O14-nan-placeholder-not-divergence/metrics.jsonl", "generic", range(1, 11)),
        ("O14-nan-placeholder-not-divergence/notebook_table.txt", "generic", range(1, 6)),
        ("O15-openrlhf-spike-recovers/ray.log", "openrlhf", range(1, 63)),
        ("P03-dynamic-sampling-exhausted/ray.log", "verl", range(1, 10)),
        ("P05-every-rank-prints-its-own-loss/stdout.log", "generic", range(300, 312)),
        ("P06-nonfinite-as-strings/history.jsonl", "generic", range(40, 60)),
        ("P07-entropy-explosion-not-length/train.log", "trl", range(10, 421, 10)),
    ],
)
def test_every_step_is_read_once(cases: Path, log: str, dialect: str, steps: range) -> None:
    found, rows, _ = read(cases / log)
    assert found == dialect
    assert [step for step, _ in rows] == list(steps)


def test_slime_prints_a_training_and_a_rollout_line_for_each_step(cases: Path) -> None:
    dialect, rows, _ = read(cases / "O02-slow-mismatch-growth" / "train.log")
    assert dialect == "slime"
    assert [step for step, _ in rows] == [step for step in range(30) for _ in range(2)]
    assert rows[0][1]["logprob_difference_abs_mean"] == 0.01209
    assert rows[1][1]["reward_mean"] == 0.3220


def test_the_product_of_a_long_sequence_is_an_applied_weight(cases: Path) -> None:
    _, rows, _ = read(cases / "O01-trl-sequence-sum" / "train.log")
    assert rows[0][1]["is_weight_mean"] == 0.569
    assert "is_ratio_mean" not in rows[0][1]


def test_a_dead_run_of_ms_swift_is_told_by_its_gradient(cases: Path) -> None:
    _, rows, events = read(cases / "O06-ms-swift-dead-run" / "logging.jsonl.txt")
    assert events[0] == ("nan_loss", 304)
    assert math.isnan(dict(rows)[304]["grad_norm"]) and dict(rows)[304]["loss"] == 0.0
    assert dict(rows)[300]["step_seconds"] == pytest.approx(1 / 0.021)
    assert dict(rows)[304]["truncated_fraction"] == 1.0


def test_its_completions_stop_being_text_at_the_same_step(cases: Path) -> None:
    dialect, rows, events = read(cases / "O06-ms-swift-dead-run" / "completions.jsonl")
    assert dialect == "completions" and rows == []
    assert events == [("samples_degenerate", step) for step in range(304, 309)]


def test_nan_where_nothing_was_measured_is_no_fault(cases: Path) -> None:
    _, rows, events = read(cases / "O14-nan-placeholder-not-divergence" / "metrics.jsonl")
    assert events == []
    assert math.isnan(rows[0][1]["objective/code_reward"])
    assert all(values["grad_norm"] == 0.3 for _, values in rows)


def test_of_several_ranks_rank_0_counts(cases: Path) -> None:
    _, rows, _ = read(cases / "P05-every-rank-prints-its-own-loss" / "stdout.log")
    assert rows[0][1] == {"policy_loss": 0.3001, "kl_ref": 0.0199, "tokens_per_second_per_gpu": 14983.0}
    assert all(0.28 < values["policy_loss"] < 0.32 for _, values in rows)


def test_infinity_as_a_text_is_infinity(cases: Path) -> None:
    _, rows, events = read(cases / "P06-nonfinite-as-strings" / "history.jsonl")
    assert dict(rows)[55]["grad_norm"] == math.inf
    assert math.isnan(dict(rows)[56]["grad_norm"])
    assert events[0] == ("nan_loss", 55)


def test_a_restart_is_said_once_and_its_steps_count_anew(cases: Path) -> None:
    _, rows, events = read(cases / "P08-restart-rewinds-steps" / "train.log")
    steps = [step for step, _ in rows]
    assert steps == [*range(232, 250), *range(240, 262)]
    assert [event for event in events if event[0] == "resumed"] == [("resumed", 240)]


def test_an_engines_own_log_costs_no_false_reading(cases: Path) -> None:
    for log in ("O04-kv-retraction-throughput/engine.log", "P04-http500-minus-infinity/engine.log"):
        assert read(cases / log)[1] == []
