"""Figures of the trainer: artefacts, growth, spikes, truncation, critics, scales."""

from __future__ import annotations

import math

import numpy as np
import pytest
from incidents.course import drive, loud, row

from posttrain_watchdog.incidents.causes.length_artefact import masked_mean, truncated_mean
from posttrain_watchdog.incidents.finding import PRIOR, STATED, STRONG, Finding
from posttrain_watchdog.incidents.statistics import slope, student_tail, theil_sen
from posttrain_watchdog.model import Event, Metric, Row


def test_the_expected_masked_mean_is_that_of_the_literature() -> None:
    for variance, expected in ((0.2, 0.99), (0.5, 0.89), (1, 0.73), (2, 0.53), (4, 0.33), (8, 0.15), (16, 0.04)):
        assert masked_mean(variance) == pytest.approx(expected, abs=0.011)
    for variance, expected in ((0.5, 0.97), (1, 0.89), (2, 0.74), (4, 0.51), (8, 0.26), (16, 0.08)):
        assert truncated_mean(variance) == pytest.approx(expected, abs=0.011)


def test_student_tail_and_slope() -> None:
    assert student_tail(2.015, 5) == pytest.approx(0.05, abs=1e-3)
    assert student_tail(3.747, 4) == pytest.approx(0.01, abs=1e-3)
    at = np.arange(40.0)
    assert theil_sen(at, 3 * at + np.where(at == 7, 1e6, 0)) == pytest.approx(3)
    noise = np.random.default_rng(0).normal(size=40)
    assert slope(at, noise).p > 0.05
    assert slope(at, at + noise).p < 1e-6
    assert slope(at, np.cumsum(noise)).p > 0.01


def test_confidence_follows_its_rule() -> None:
    def with_odds(*odds: float) -> float:
        return Finding("", {str(n): o for n, o in enumerate(odds)}, {}, ("", "", "")).confidence

    assert with_odds(STRONG) == pytest.approx(0.5)
    assert with_odds(STATED) == pytest.approx(10 / 11)
    assert with_odds() == pytest.approx(PRIOR / (1 + PRIOR))


def test_a_sequence_weight_that_falls_step_by_step_is_no_artefact() -> None:
    rows = [
        row(s, is_weight_mean=max(0.9 - s / 40, 0), logprob_difference_abs_mean=0.01, completion_length_mean=500)
        for s in range(1, 40)
    ]
    assert "length_artefact" not in loud(drive(rows)[1])


def test_large_token_differences_are_no_artefact() -> None:
    rows = [
        row(s, is_weight_mean=0.4, logprob_difference_abs_mean=0.2, completion_length_mean=900) for s in range(1, 20)
    ]
    assert "length_artefact" not in drive(rows)[1]


def test_mismatch_grows_late_in_a_noisy_run() -> None:
    random = np.random.default_rng(3)
    rows = [
        row(s, logprob_difference_abs_mean=0.01 * math.exp(random.normal() * 0.1 + max(0, s - 100) * 0.03))
        for s in range(1, 180)
    ]
    _, found, first = drive(rows)
    assert 100 < first["mismatch_growing"] < 150
    assert 85 <= (found["mismatch_growing"].first_step or 0) <= 135


def test_differences_at_the_float_floor_may_double() -> None:
    assert drive([row(s, logprob_difference_abs_mean=4e-7 * (1 + s / 20)) for s in range(1, 60)])[1] == {}


def test_a_named_cause_comes_before_a_description() -> None:
    monitor, found, _ = drive([row(s, logprob_difference_abs_mean=0.01 * 1.05**s) for s in range(1, 40)])
    assert found["mismatch_growing"].confidence > 0.9
    named = {d.cause: d for d in monitor.tick(2000.0, named={"stale_weights"})}
    assert named["mismatch_growing"].confidence < 0.5
    noise = {d.cause: d for d in monitor.tick(2000.0, named={"precision_noise"})}
    assert noise["mismatch_growing"].confidence > 0.9
    monitor.observe(Row({Metric("posttrain_tokens_compared"): 4000.0}, 39))
    beside = {d.cause: d for d in monitor.tick(2000.0)}
    assert 0.5 <= beside["mismatch_growing"].confidence <= 0.6


def test_heavy_tailed_gradients_alone_are_no_spike() -> None:
    random = np.random.default_rng(0)
    rows = [
        row(s, grad_norm=0.3 * math.exp(random.standard_t(2)), loss=random.standard_t(3) * 0.02) for s in range(1, 300)
    ]
    assert drive(rows)[2] == {}


def test_a_spike_that_does_not_come_back_is_none() -> None:
    _, _, first = drive([row(s, kl_ref=0.012 if s < 30 else 17.0, policy_loss=0.1) for s in range(1, 60)])
    assert "transient_spike" not in first


def test_a_spike_is_said_once_it_is_over_and_forgotten_later() -> None:
    _, found, first = drive([row(s, kl_ref=9.0 if s == 30 else 0.012 + s % 5 / 1000) for s in range(1, 120)])
    assert first["transient_spike"] == 31
    assert loud(found) == {}


_PADDED = (211, 340, 187, 402, 260, 333, 298)
"""Longest completions of steps whose end token nobody knows: all lengths of a step are the padded one."""


def _cut(count: int, cut: float, mean: float, longest: float) -> list[Row]:
    return [
        row(s, truncated_fraction=cut, completion_length_mean=mean, completion_length_max=longest, reward_mean=0.1)
        for s in range(1, count)
    ]


def test_completions_hit_the_limit_or_the_end_token_is_not_known() -> None:
    assert set(loud(drive(_cut(12, 1.0, 512, 512))[1])) == {"completions_truncated"}
    assert set(loud(drive(_cut(12, 1.0, 260, 512))[1])) == {"eos_mismatch"}
    assert loud(drive(_cut(12, 0.4, 350, 512))[1]) == {}
    padded = [
        row(s, truncated_fraction=1, completion_length_mean=n, completion_length_max=n) for s, n in enumerate(_PADDED)
    ]
    assert set(loud(drive(padded)[1])) == {"eos_mismatch"}
    assert loud(drive(_cut(4, 1.0, 512, 512))[1]) == {}


def test_a_young_critic_explains_nothing_for_a_while() -> None:
    rows = [
        row(s, value_explained_variance=-1.5 + s / 15, value_loss=3.0 - s / 20, grad_norm=0.4) for s in range(1, 40)
    ]
    assert drive(rows)[2] == {}


def test_the_critic_fails_later() -> None:
    rows = [row(s, value_explained_variance=0.4 if s < 40 else 0.4 - (s - 40) / 4, grad_norm=0.4) for s in range(1, 60)]
    _, found, first = drive(rows)
    assert first["value_function_failing"] <= 48
    assert 40 <= (found["value_function_failing"].first_step or 0) <= 46


def test_generation_batches_that_only_fluctuate() -> None:
    rows = [row(s, generation_batches=[2, 3, 2, 4, 3, 2, 3, 4][s % 8], reward_mean=0.4) for s in range(1, 80)]
    assert drive(rows)[2] == {}


@pytest.mark.parametrize("seed", range(6))
def test_generation_batches_at_random(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = [row(s, generation_batches=random.choice([1, 1, 2, 2, 3]), reward_mean=0.05) for s in range(1, 150)]
    assert drive(rows)[2] == {}


def _scaled(anchor_moves: bool) -> list[Row]:
    random = np.random.default_rng(1)
    rows = []
    for s in range(1, 60):
        late = s >= 30
        rows.append(
            row(
                s,
                loss=(0.5 + random.normal() * 0.01) * (8 if late else 1),
                grad_norm=(0.4 + random.normal() * 0.02) * (8 if late and anchor_moves else 1),
                entropy=0.6 + random.normal() * 0.02,
                reward_mean=0.5 + random.normal() * 0.02,
            )
        )
    return rows


def test_a_figure_jumps_by_a_whole_factor_and_nothing_moves_with_it() -> None:
    changed = Event("config_changed", "config loss_agg_mode changed from a to b", {}, 30)
    rows = _scaled(anchor_moves=False)
    _, found, _ = drive([*rows[:29], changed, *rows[29:]])
    assert found["metric_scale_changed"].confidence > 0.9
    assert found["metric_scale_changed"].first_step == 30
    assert "close to 8" in str(found["metric_scale_changed"].evidence["factor"])


def test_a_jump_that_others_follow_is_no_matter_of_scale() -> None:
    assert "metric_scale_changed" not in drive(_scaled(anchor_moves=True))[1]


def test_severe_disagreement_in_one_figure_needs_several_steps() -> None:
    assert drive([row(1, probability_correlation=0.5)])[1] == {}
    both = drive([row(1, probability_correlation=0.5, probability_difference_mean=0.12)])[1]
    assert both["unknown"].confidence > 0.9
    assert both["unknown"].first_step == 1
    assert drive([row(s, probability_correlation=0.995, mult_prob_error=1.03) for s in range(1, 30)])[1] == {}
