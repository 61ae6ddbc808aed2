"""Runs in which nothing is wrong, with the noise of life: nobody may say a word."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml
from incidents.course import PREFIX, drive, healthy, loud, row
from incidents.logs import read

from posttrain_watchdog.incidents.causes.mismatch_growing import judge
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.model import Event, Metric, Row


@pytest.mark.parametrize("seed", range(100, 104))
def test_noise(seed: int) -> None:
    assert drive(healthy(250, seed), every=2)[2] == {}


@pytest.mark.parametrize("seed", range(2))
def test_resume_from_a_checkpoint(seed: int) -> None:
    rows = healthy(200, seed)
    stop = Event("preempted", "CANCELLED DUE TO PREEMPTION", {}, None, 60.0 * 150 + 30)
    back = Event("resumed", "Resuming from checkpoint-140", {}, 140, 60.0 * 150 + 1500)
    again = healthy(200, seed + 50)[140:]
    for each in again:
        each.time = (each.time or 0.0) + 60.0 * 10 + 1500
    monitor, _, first = drive([*rows[:150], stop, back, *again])
    assert first == {}
    assert monitor.history.trainer("loss").at.tolist() == [float(s) for s in range(1, 201)]


def test_a_restart_without_a_word_is_noticed_by_its_steps() -> None:
    monitor, _, first = drive([*healthy(100, 1), *healthy(160, 2)[80:]])
    assert first == {}
    assert monitor.history.breaks == [83]
    assert monitor.history.step == 160


@pytest.mark.parametrize("seed", range(2))
def test_curriculum_switch(seed: int) -> None:
    rows = healthy(240, seed)
    for each in rows[120:]:
        for short, factor in (
            ("reward_mean", 0.4),
            ("completion_length_mean", 1.8),
            ("step_seconds", 1.7),
            ("mismatch_kl_k3", 2.2),
            ("logprob_difference_abs_mean", 1.4),
            ("zero_std_fraction", 1.5),
        ):
            each.values[Metric(PREFIX + short)] *= factor
    assert drive(rows)[2] == {}


def test_evaluation_gaps() -> None:
    rows, late = healthy(120, 4), 0.0
    for n, each in enumerate(rows):
        late += 500.0 if n and n % 20 == 0 else 0.0
        each.time = (each.time or 0.0) + late
    items: list[Row | Event] = []
    for before, after in pairwise(rows):
        items.append(before)
        # something is heard in between, so that a tick falls into the gap
        items.append(Event("prefix_cache_reset", "reset", {}, None, (after.time or 0.0) - 1))
    assert drive(items)[2] == {}


def test_renamed_keys() -> None:
    rows = healthy(150, 6)
    for each in rows[75:]:
        each.values = {
            (Metric("posttrain_trainer_value", {"key": m.name}) if "entropy" in m.name or "reward" in m.name else m): v
            for m, v in each.values.items()
        }
    assert drive(rows)[2] == {}


def test_asynchronous_warm_up() -> None:
    rows = healthy(150, 7)
    for n, each in enumerate(rows):
        lag = min(n / 20, 3.0)
        each.values[Metric(PREFIX + "staleness_mean")] = lag
        each.values[Metric(PREFIX + "mismatch_kl_k3")] *= 1 + 2 * lag
        each.values[Metric(PREFIX + "logprob_difference_abs_mean")] *= 1 + 0.7 * lag
    assert drive(rows)[2] == {}


def test_two_sources_tell_the_same_steps() -> None:
    items: list[Row | Event] = []
    for n, each in enumerate(healthy(80, 8)):
        items.append(each)
        if n:
            items.append(Row(dict(items[-2].values if isinstance(items[-2], Row) else {}), n, (each.time or 0.0) + 1))
    monitor, _, first = drive(items)
    assert first == {}
    assert monitor.history.breaks == []


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.8])
def test_autocorrelated_mismatch_is_no_growth(memory: float) -> None:
    alarms = 0
    for seed in range(12):
        random = np.random.default_rng(seed)
        history, walk = History(), random.normal() * 0.25
        for step in range(1, 201):
            walk = memory * walk + random.normal() * 0.25 * math.sqrt(1 - memory**2)
            history.row(row(step, logprob_difference_abs_mean=0.011 * math.exp(walk)))
            if step % 5 == 0 and judge(history) is not None:
                alarms += 1
    assert alarms == 0


def test_healthy_recordings(recordings: Path) -> None:
    heard = 0
    for expected in sorted(recordings.glob("*/expected.yaml")):
        log = expected.parent / "stdout.log"
        if not yaml.safe_load(expected.read_text()).get("healthy") or not log.exists():
            continue
        heard += 1
        _, found, first = drive(read(log))
        assert (expected.parent.name, first) == (expected.parent.name, {})
        assert loud(found) == {}
    assert heard >= 5
