"""slime's console: `[time] file:line - step N: {...}`, `rollout N: {...}`, `perf N: {...}` (624b824a, driven).

Two axes: `rollout N`, both kinds of `perf N`, `passrate N`, `multi_turn N` and `eval N` count rollouts, `step N` and
`critic-step N` optimizer steps; rollouts are brought to the steps' axis where one makes several. After a restart it is
a rollout that goes back first. `ois` is the PPO ratio, not a rollout ratio; tis is the raw rollout ratio.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers import text
from posttrain_watchdog.sources.trainers.steps import Onward, StepCounter
from posttrain_watchdog.sources.trainers.table import Table

KEYS: Mapping[str, str] = {
    "train/loss": "loss",
    "train/pg_loss": "policy_loss",
    "train/grad_norm": "grad_norm",
    "train/lr-pg_0": "learning_rate",
    "train/entropy_loss": "entropy",
    "train/kl_loss": "kl_ref",
    "train/critic-value_loss": "value_loss",
    "train/ppo_kl": "ppo_kl",
    "train/pg_clipfrac": "clip_fraction",
    "rollout/raw_reward": "reward_mean",
    "rollout/rewards": "reward_mean",
    "rollout/advantages": "advantage_mean",
    "rollout/response_len/mean": "completion_length_mean",
    "rollout/response_lengths": "completion_length_mean",
    "rollout/response_len/max": "completion_length_max",
    "rollout/response_len/min": "completion_length_min",
    "rollout/truncated_ratio": "truncated_fraction",
    "rollout/truncated": "truncated_fraction",
    "perf/step_time": "step_seconds",
    "perf/rollout_time": "generation_seconds",
    "perf/actor_train_time": "training_seconds",
    "perf/log_probs_time": "logprob_seconds",
    "perf/update_weights_time": "weight_sync_seconds",
    "perf/train_wait_time": "wait_seconds",
    "perf/actor_train_tok_per_s": "tokens_per_second",
    "perf/tokens_per_gpu_per_sec": "tokens_per_second_per_gpu",
    "train/tis": "is_ratio_mean",
    "train/mis_tis_weight_before_bound": "is_ratio_mean",
    "train/tis_clipfrac": "is_out_of_bounds_fraction",
    "train/mis_tis_truncate_fraction": "is_out_of_bounds_fraction",
    "train/ois": "ppo_ratio_mean",
    "train/train_rollout_logprob_abs_diff": "logprob_difference_abs_mean",
    "train/mis_rs_catastrophic_seq_fraction": "veto_fraction",
    "train/mis_training_ppl": "trainer_perplexity",
    "train/mis_rollout_ppl": "rollout_perplexity",
    "rollout/log_probs": "trainer_logprob_mean",
    "rollout/rollout_log_probs": "rollout_logprob_mean",
    "train/mis_is_ratio_mean_final": "is_weight_mean",
    "train/mis_is_ratio_mean_after_tis_rs": "is_weight_mean",
    "train/mis_tis_weight_after_bound": "is_weight_mean",
    "train/mis_is_ratio_min_final": "is_weight_min",
    "train/mis_is_ratio_max_final": "is_weight_max",
    "train/mis_kl": "mismatch_kl_k1",
    "train/mis_k3_kl": "mismatch_kl_k3",
    "train/mis_log_ppl_diff": "log_perplexity_gap",
    "train/mis_log_ppl_abs_diff": "log_perplexity_gap_abs",
    "train/mis_ppl_ratio": "perplexity_ratio",
    "train/mis_chi2_token": "chi2_token",
    "train/mis_chi2_seq": "chi2_sequence",
    "train/mis_tis_clip_fraction_high": "is_out_of_bounds_fraction_high",
    "train/mis_tis_mask_fraction_high": "is_out_of_bounds_fraction_high",
    "train/mis_tis_clip_fraction_low": "is_out_of_bounds_fraction_low",
    "train/mis_tis_mask_fraction_low": "is_out_of_bounds_fraction_low",
    "train/mis_rs_mask_fraction_high": "masked_fraction_token_high",
    "train/mis_rs_mask_fraction_low": "masked_fraction_token_low",
}

_LINE = re.compile(r"(?:[\w./]+:\d+ - )?(\w+-step|step|rollout|perf|eval|passrate|multi_turn) (\d+): \{")


def recognises(line: str) -> bool:
    _, body = text.stamp(text.bare(line))
    match = _LINE.match(body)
    return match is not None and f"'{'train' if match.group(1).endswith('step') else match.group(1)}/" in body


class Dialect:
    """Reads one console."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._table = Table(KEYS, ignored=frozenset({"train/step", "rollout/step"}))
        self._steps = StepCounter(logging_steps)
        self._stamps = text.Stamps()
        self._rollout = -1
        self._step = -1
        self._since_rollout = 0
        self._per_rollout = 1
        self._onward = Onward()

    def feed(self, line: str) -> Iterable[Row | Event]:
        return self._read(line) if ": {" in line else ()

    def close(self) -> Iterable[Row | Event]:
        return self._steps.last()

    def _read(self, line: str) -> Iterable[Row | Event]:
        time, line = self._stamps.take(text.bare(line))
        match = _LINE.match(line)
        if match is None:
            return ()
        kind, number = match.group(1), int(match.group(2))
        numbers = text.python_dict(line[match.end() - 1 :])
        if kind.endswith("step"):
            self._since_rollout += number != self._step  # the critic has a line of its own for the same step
            self._step = number
            return self._steps.told(number, time, self._table.rows(numbers, number, time))
        if number != self._rollout:
            self._per_rollout = max(self._per_rollout, self._since_rollout if self._rollout >= 0 else 1)
            self._rollout, self._since_rollout = number, 0
        step = number * self._per_rollout
        if kind == "perf" and "perf/rollout_time" in numbers:
            kind = "generation"
        if self._onward.goes_back(kind, number) or self._steps.holds:
            return self._steps.told(step, time, self._table.rows(numbers, step, time))
        if self._steps.step is not None and not -1 <= step - self._steps.step <= 8 * self._per_rollout:
            step = self._steps.step
        return self._table.rows(numbers, step, time)
