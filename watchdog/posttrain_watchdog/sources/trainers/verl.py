"""verl's console (`step:N - key:value - ...`) and its JSONL file logger ({"step":N,"data":{...}}); 0.5.0 to 0.9.1.

numpy 2 scalars are printed with their type; from 0.7 on the file logger writes NaN as null. In token mode the
rollout_is statistics are taken after clamping (in sequence mode only their mean, and a log does not say which mode
it is), so all count as applied weights. kl is mean(-d), the canonical k1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers import text
from posttrain_watchdog.sources.trainers.steps import StepCounter
from posttrain_watchdog.sources.trainers.table import Table

KEYS: Mapping[str, str] = {
    "train/num_gen_batches": "generation_batches",
    "token_mult_prob_error": "mult_prob_error",
    "critic/loss": "value_loss",
    "critic/vf_loss": "value_loss",
    "critic/explained_var": "value_explained_variance",
    "critic/vf_explained_var": "value_explained_variance",
    "training/epoch": "epoch",
    "actor/loss": "loss",
    "actor/pg_loss": "policy_loss",
    "actor/grad_norm": "grad_norm",
    "actor/lr": "learning_rate",
    "actor/entropy": "entropy",
    "actor/entropy_loss": "entropy",
    "actor/kl_loss": "kl_ref",
    "actor/reward_kl_penalty": "kl_ref",
    "actor/ppo_kl": "ppo_kl",
    "actor/pg_clipfrac": "clip_fraction",
    "actor/pg_clipfrac_lower": "clip_fraction_low",
    "critic/rewards/mean": "reward_mean",
    "critic/score/mean": "reward_mean",
    "critic/rewards/max": "reward_max",
    "critic/score/max": "reward_max",
    "critic/rewards/min": "reward_min",
    "critic/score/min": "reward_min",
    "critic/advantages/mean": "advantage_mean",
    "critic/advantages/max": "advantage_max",
    "critic/advantages/min": "advantage_min",
    "response_length/mean": "completion_length_mean",
    "response_length/max": "completion_length_max",
    "response_length/min": "completion_length_min",
    "response_length/clip_ratio": "truncated_fraction",
    "perf/total_num_tokens": "tokens_total",
    "perf/throughput": "tokens_per_second_per_gpu",
    "perf/mfu/actor": "mfu",
    "timing_s/step": "step_seconds",
    "perf/time_per_step": "step_seconds",
    "timing_s/gen": "generation_seconds",
    "timing_s/update_actor": "training_seconds",
    "timing_s/old_log_prob": "logprob_seconds",
    "timing_s/update_weights": "weight_sync_seconds",
    "timing_s/param_sync": "weight_sync_seconds",
    "training/off_policy/trajectory_staleness/mean": "staleness_mean",
    "training/off_policy/trajectory_staleness_worst/max": "staleness_max",
    "training/off_policy/trajectory_staleness/max": "staleness_max",
    "training/off_policy/evicted_samples": "stale_dropped",
    "fully_async/count/dropped_stale_samples": "stale_dropped",
    "fully_async/count/current_param_version": "weight_version",
    "training/global_step": "weight_version",
    "rollout_corr/rollout_is_mean": "is_weight_mean",
    "mismatch/rollout_is_mean": "is_weight_mean",
    "rollout_corr/rollout_is_min": "is_weight_min",
    "mismatch/rollout_is_min": "is_weight_min",
    "rollout_corr/rollout_is_max": "is_weight_max",
    "mismatch/rollout_is_max": "is_weight_max",
    "rollout_corr/rollout_is_std": "is_weight_std",
    "mismatch/rollout_is_std": "is_weight_std",
    "rollout_corr/rollout_is_oob_ratio": "is_out_of_bounds_fraction",
    "rollout_corr/rollout_is_ratio_fraction_high": "is_out_of_bounds_fraction_high",
    "mismatch/rollout_is_ratio_fraction_high": "is_out_of_bounds_fraction_high",
    "rollout_corr/rollout_is_ratio_fraction_low": "is_out_of_bounds_fraction_low",
    "mismatch/rollout_is_ratio_fraction_low": "is_out_of_bounds_fraction_low",
    "rollout_corr/kl": "mismatch_kl_k1",
    "mismatch/mismatch_kl": "mismatch_kl_k1",
    "rollout_corr/k3_kl": "mismatch_kl_k3",
    "mismatch/mismatch_k3_kl": "mismatch_kl_k3",
    "training/rollout_probs_diff_mean": "probability_difference_mean",
    "training/rollout_probs_diff_max": "probability_difference_max",
    "training/rollout_probs_diff_std": "probability_difference_std",
    "training/rollout_actor_probs_pearson_corr": "probability_correlation",
    "rollout_corr/rollout_is_eff_sample_size": "effective_sample_size",
    "mismatch/rollout_is_eff_sample_size": "effective_sample_size",
    "rollout_corr/log_ppl_diff": "log_perplexity_gap",
    "mismatch/mismatch_log_ppl_diff": "log_perplexity_gap",
    "rollout_corr/log_ppl_abs_diff": "log_perplexity_gap_abs",
    "mismatch/mismatch_log_ppl_abs_diff": "log_perplexity_gap_abs",
    "rollout_corr/ppl_ratio": "perplexity_ratio",
    "mismatch/mismatch_ppl_ratio": "perplexity_ratio",
    "rollout_corr/training_ppl": "trainer_perplexity",
    "mismatch/mismatch_training_ppl": "trainer_perplexity",
    "rollout_corr/rollout_ppl": "rollout_perplexity",
    "mismatch/mismatch_rollout_ppl": "rollout_perplexity",
    "rollout_corr/chi2_token": "chi2_token",
    "rollout_corr/chi2_seq": "chi2_sequence",
    "rollout_corr/rollout_rs_masked_fraction": "masked_fraction_token",
    "mismatch/rollout_is_masked_fraction": "masked_fraction_token",
    "rollout_corr/rollout_rs_seq_masked_fraction": "masked_fraction_sequence",
    "mismatch/rollout_is_seq_masked_fraction": "masked_fraction_sequence",
    "rollout_corr/rollout_is_veto_fraction": "veto_fraction",
    "mismatch/rollout_is_veto_fraction": "veto_fraction",
    "rollout/moe/max_vio/max": "moe_max_violation",
}

_LINE = re.compile(r"\s*(?:step|global_step):\s*(\d+) - ")
_FILE = re.compile(r"\{\s*\"step\"\s*:\s*(\d+)\s*,\s*\"data\"\s*:\s*(?=\{)")


def recognises(line: str) -> bool:
    body = text.rank(text.stamp(text.bare(line))[1])[1]
    return _FILE.match(body) is not None or (_LINE.match(body) is not None and "/" in body and ":" in body)


class Dialect:
    """Reads one console or file logger."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._table = Table(KEYS, ignored=frozenset({"step"}))
        self._steps = StepCounter(logging_steps)
        self._stamps = text.Stamps()
        self._dashed = text.Dashed()

    def feed(self, line: str) -> Iterable[Row | Event]:
        return self._read(line) if "step" in line else ()

    def close(self) -> Iterable[Row | Event]:
        return self._steps.last()

    def _read(self, line: str) -> Iterable[Row | Event]:
        line = text.bare(line)
        time, line = self._stamps.take(line)
        line = text.rank(line)[1]
        match = _LINE.match(line)
        if match is not None:
            if "/" not in line:
                return ()
            step = int(match.group(1))
            keys, values = self._dashed.read(line[match.end() :])
            return self._steps.told(step, time, self._table.aligned(keys, values, step, time))
        match = _FILE.match(line)
        numbers = text.json_numbers(line[match.end() : line.rfind("}")]) if match is not None else None
        if match is None or numbers is None:
            return ()
        step = int(match.group(1))
        return self._steps.told(step, time, self._table.rows(numbers, step, time))
