"""NeMo-RL's console blocks (7ea279ab, driven): a header with the step, then bullets; rows exported with its own keys.

The synchronous loops count the header's steps within the epoch, whose header stands before: the steps of the epochs
before are added, so that the console's step is the one of TensorBoard.

sampling_importance_ratio is taken after truncation; gen_kl_error is k3, policy_kl_error its reverse.
num_masked_seqs* are counts and keep their own names; loss, grad_norm and the token metrics are sums over the
optimizer steps of one rollout step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers import text
from posttrain_watchdog.sources.trainers.steps import StepCounter
from posttrain_watchdog.sources.trainers.table import Table

KEYS: Mapping[str, str] = {
    "train/loss": "loss",
    "train/grad_norm": "grad_norm",
    "train/lr": "learning_rate",
    "train/approx_entropy": "entropy",
    "train/kl_penalty": "kl_ref",
    "train/probs_ratio": "ppo_ratio_mean",
    "train/reward": "reward_mean",
    "train/advantages/mean": "advantage_mean",
    "train/advantages/max": "advantage_max",
    "train/advantages/min": "advantage_min",
    "train/mean_gen_tokens_per_sample": "completion_length_mean",
    "train/truncation_rate": "truncated_fraction",
    "train/global_valid_toks": "tokens_total",
    "performance/tokens_per_sec_per_gpu": "tokens_per_second_per_gpu",
    "timing/train/valid_tokens_per_sec_per_gpu": "tokens_per_second_per_gpu",
    "performance/tokens_per_sec": "tokens_per_second",
    "performance/train_fp_utilization": "mfu",
    "timing/train/total_step_time": "step_seconds",
    "timing/train/generation": "generation_seconds",
    "timing/train/exposed_generation": "generation_seconds",
    "timing/train/policy_training": "training_seconds",
    "timing/train/policy_and_reference_logprobs": "logprob_seconds",
    "timing/train/weight_sync": "weight_sync_seconds",
    "timing/train/prepare_for_generation/total": "weight_sync_seconds",
    "train/avg_trajectory_age": "staleness_mean",
    "train/sampling_importance_ratio": "is_weight_mean",
    "train/is_oob_ratio": "is_out_of_bounds_fraction",
    "train/gen_kl_error": "mismatch_kl_k3",
    "train/policy_kl_error": "mismatch_kl_k3_reverse",
    "train/js_divergence_error": "mismatch_js",
    "train/token_mult_prob_error": "mult_prob_error",
    "train/max_seq_mult_prob_error": "mult_prob_error_sequence_max",
    "train/mean_seq_mult_prob_error": "mult_prob_error_sequence_mean",
    "train/probs_ratio_max": "ppo_ratio_max",
    "train/probs_ratio_min": "ppo_ratio_min",
    "train/critic/loss": "value_loss",
    "train/critic/explained_var": "value_explained_variance",
}

_BULLETS: Mapping[str, str] = {
    "Loss": "loss",
    "Policy Loss": "loss",
    "Critic Loss": "value_loss",
    "Generation KL Error": "mismatch_kl_k3",
    "Avg Reward": "reward_mean",
    "Avg Total Reward": "reward_mean",
    "Mean Generation Length": "completion_length_mean",
    "Avg Trajectory Age": "staleness_mean",
    "Avg Trajectory Age (gen-version)": "staleness_mean",
    "Total step time": "step_seconds",
    "policy_training": "training_seconds",
    "generation": "generation_seconds",
    "exposed_generation": "generation_seconds",
    "policy_and_reference_logprobs": "logprob_seconds",
    "weight_sync": "weight_sync_seconds",
    "prepare_for_generation/total": "weight_sync_seconds",
}
_HEADER = re.compile(r"=====+ (Step|Epoch) (\d+)/(\d+) =====+\s*$")
_BULLET = re.compile(r"\s*\u2022 ([\w ./\-()]+): ([-+\d.eE]+|nan|inf|-inf)(?:s|ms| steps| tokens)?(?: \(.*\))?\s*$")
_MOST_EPOCHS = 10_000


def recognises(line: str) -> bool:
    match = _HEADER.search(text.bare(line)) if "=====" in line else None
    return match is not None and match.group(1) == "Step"


class Dialect:
    """Reads one console."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._table = Table({**KEYS, **_BULLETS})
        self._steps = StepCounter(logging_steps)
        self._block: text.Numbers = {}
        self._step: int | None = None
        self._epoch = 1
        self._steps_before = {1: 0}
        """epoch -> steps of the epochs before it"""
        self._last_step = 0

    def feed(self, line: str) -> Iterable[Row | Event]:
        return self._read(line) if "\u2022" in line or "= Step " in line or "= Epoch " in line else ()

    def close(self) -> Iterable[Row | Event]:
        return [*self._finished(), *self._steps.last()]

    def _read(self, line: str) -> Iterable[Row | Event]:
        line = text.bare(line)
        header = _HEADER.search(line) if "=====" in line else None
        if header is not None:
            found = self._finished()
            number, of = int(header.group(2)), int(header.group(3))
            if header.group(1) == "Epoch":
                self._begin_epoch(number)
                return found
            if self._epoch not in self._steps_before and len(self._steps_before) < _MOST_EPOCHS:
                self._steps_before[self._epoch] = (self._epoch - 1) * of  # the log begins in a later epoch
            self._step = self._last_step = self._steps_before.get(self._epoch, 0) + number
            return found
        bullet = _BULLET.match(line)
        if bullet is not None and self._step is not None:
            self._block.setdefault(bullet.group(1), text.number(bullet.group(2)))
        return ()

    def _begin_epoch(self, epoch: int) -> None:
        """An epoch that was there before is one of a resumed run; the one after the last goes on from its steps."""
        follows = epoch == self._epoch + 1 and self._epoch in self._steps_before and self._last_step > 0
        if follows and epoch not in self._steps_before:
            self._steps_before[epoch] = self._last_step
        self._epoch = epoch

    def _finished(self) -> list[Row | Event]:
        block, self._block = self._block, {}
        step, self._step = self._step, None
        if not block or step is None:
            return []
        return self._steps.told(step, None, self._table.rows(block, step))
