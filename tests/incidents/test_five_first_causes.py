"""Judges on hand-made courses of runs: what must be named, when, and what must stay silent."""

from __future__ import annotations

import math
from pathlib import Path

from incidents.course import drive, loud, row

from posttrain_watchdog.model import Event
from posttrain_watchdog.sources.failure_lines import FailureLines

NAN = math.nan


def test_gradient_becomes_infinite_then_nan() -> None:
    rows = [row(s, grad_norm=0.4, reward_mean=0.5, ppo_kl=2e-4) for s in range(40, 55)]
    rows += [
        row(55, grad_norm=math.inf, reward_mean=0.5),
        *(row(s, grad_norm=NAN, reward_mean=0) for s in range(56, 60)),
    ]
    _, found, first = drive(rows)
    named = found["non_finite_training"]
    assert first["non_finite_training"] == 55
    assert named.first_step == 55
    assert named.confidence > 0.9
    assert "inf at step 55" in str(named.evidence["grad_norm"])
    assert "0.4 before" in str(named.evidence["grad_norm"])


def test_kl_is_nan_because_there_is_no_reference_model() -> None:
    _, found, _ = drive([row(s, loss=-0.1, reward_mean=6.0 + s % 3, kl_ref=NAN, grad_norm=0.3) for s in range(1, 20)])
    assert loud(found) == {}


def test_first_gradient_is_nan_and_the_rest_is_fine() -> None:
    _, found, first = drive([row(1, grad_norm=NAN), *(row(s, grad_norm=0.3) for s in range(2, 20))])
    assert first == {}
    assert found == {}


def test_one_overflow_under_dynamic_loss_scaling_is_by_design() -> None:
    rows = [row(s, grad_norm=math.inf if s == 9 else 0.3, loss_scale=65536.0) for s in range(1, 20)]
    _, found, _ = drive(rows)
    assert loud(found) == {}


def test_a_gradient_that_recovers_is_forgotten_after_a_while() -> None:
    rows = [row(s, grad_norm=NAN if s == 20 else 0.3) for s in range(1, 80)]
    _, found, first = drive(rows)
    assert first["non_finite_training"] == 20
    assert loud(found) == {}


def test_every_group_is_tied_from_the_start() -> None:
    rows = [
        row(s, loss=0, grad_norm=0, reward_std=0, zero_std_fraction=1, reward_mean=3, learning_rate=1e-6)
        for s in range(1, 7)
    ]
    _, found, first = drive(rows)
    assert first["no_learning_signal"] == 3
    assert found["no_learning_signal"].first_step == 1


def test_two_groups_a_step_tie_now_and_then_by_chance() -> None:
    pattern = [0, 0.5, 0.5, 1, 1, 0, 1, 0, 0, 0.5, 1, 1, 1, 0, 0, 0.5, 0, 1, 0]
    _, _, first = drive(
        [row(s, zero_std_fraction=z, grad_norm=1 - z, reward_std=1 - z) for s, z in enumerate(pattern, 1)]
    )
    assert first == {}


def test_loss_of_exactly_zero_is_normal() -> None:
    rows = [row(s, loss=0.0, grad_norm=0.2, reward_std=0.3, zero_std_fraction=0.1) for s in range(1, 40)]
    _, found, _ = drive(rows)
    assert found == {}


def test_gradient_vanishes_although_rewards_differ() -> None:
    rows = [row(s, grad_norm=0.2 if s < 10 else 0.0, reward_std=0.3, learning_rate=1e-6) for s in range(1, 16)]
    _, found, _ = drive(rows)
    assert found["no_learning_signal"].confidence >= 0.5
    assert found["no_learning_signal"].first_step == 10


def _explosion(reward_falls: bool) -> list:  # type: ignore[type-arg]
    rows = []
    for s in range(10, 430, 10):
        up = max(0, s - 150)
        entropy = min(0.35 * math.exp(up / 50), 6.2) * (1 + 0.05 * math.sin(s))
        reward = 0.63 + s / 2000 + 0.01 * math.cos(s)
        if reward_falls and s > 180:
            reward *= math.exp(-(s - 180) / 60)
        rows.append(row(s, entropy=entropy, reward_mean=reward, completion_length_mean=250, truncated_fraction=0.06))
    return rows


def test_entropy_explodes_and_the_reward_follows() -> None:
    _, found, first = drive(_explosion(reward_falls=True))
    assert first["entropy_explosion"] <= 240
    assert 150 <= (found["entropy_explosion"].first_step or 0) <= 190
    assert found["entropy_explosion"].confidence > 0.9
    assert loud(found).keys() == {"entropy_explosion"}


def test_entropy_rises_from_almost_nothing() -> None:
    rows = [row(s, entropy=0.05 * (1 + s / 20), reward_mean=0.3 + s / 500) for s in range(1, 120)]
    _, _, first = drive(rows)
    assert first == {}


def _lines(path: Path) -> list[Event]:
    reader = FailureLines()
    return [e for line in path.read_text(encoding="utf-8").splitlines() for e in reader.feed(line)]


def test_the_rank_that_is_behind_is_the_subject(cases: Path) -> None:
    _, found, _ = drive(_lines(cases / "O09-coalesced-rank0-behind" / "train.log"))
    hang = found["collective_hang"]
    assert dict(hang.labels)["rank"] == "0"
    assert "8112 versus 8163" in str(hang.evidence["last enqueued"])
    assert "sync weights" in str(hang.evidence["during"])


def _waits(rank: int, seq: int) -> Event:
    return Event("nccl_timeout", "Watchdog caught", {"rank": str(rank), "seq": str(seq), "op": "ALLREDUCE"})


def test_the_rank_that_says_nothing_is_suspected() -> None:
    _, found, _ = drive([_waits(r, 100) for r in (0, 1, 3)])
    assert dict(found["collective_hang"].labels)["rank"] == "2"


def test_a_hang_after_a_dead_rank_is_a_consequence() -> None:
    dead = Event("cuda_oom", "torch.OutOfMemoryError: CUDA out of memory.", {"rank": "2"}, 7, 10.0)
    waits = [_waits(r, 100) for r in (0, 1, 3)]
    for each in waits:
        each.time = 700.0
    _, found, _ = drive([dead, *waits])
    assert found["gpu_out_of_memory"].confidence > 0.9
    assert found["gpu_out_of_memory"].confidence > found["collective_hang"].confidence


def test_out_of_memory_is_one_incident_with_its_place(cases: Path) -> None:
    events = _lines(cases / "O07-oom-in-logprob" / "ray.log")
    rows = [row(12, completion_length_mean=3120.4), row(13, completion_length_mean=4410.0)]
    _, found, _ = drive([*rows, *events])
    named = found["gpu_out_of_memory"]
    assert named.evidence["tried to allocate"] == "13.91 GiB"
    assert named.evidence["where"] == "entropy_from_logits"
    assert dict(named.labels)["phase"] == "logprobs"
    assert named.evidence["processes"] == 8
    assert "compute_log_prob" in str(named.evidence["stack"])
    assert loud(found).keys() == {"gpu_out_of_memory"}


def test_an_allocation_that_was_caught_is_no_incident() -> None:
    oom = Event("cuda_oom", "torch.OutOfMemoryError: CUDA out of memory.", {}, 3)
    _, found, _ = drive([row(3, loss=0.1), oom, *(row(s, loss=0.1) for s in range(4, 20))])
    assert found["gpu_out_of_memory"].confidence <= 0.5
