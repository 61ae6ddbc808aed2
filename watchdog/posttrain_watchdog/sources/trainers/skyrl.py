"""SkyRL's console: `Step N:` and a dict over several lines, floats as four-decimal strings (a9564572).

is_ratio_min and is_ratio_std include masked zeros there, so they keep their own names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers import text
from posttrain_watchdog.sources.trainers.steps import StepCounter
from posttrain_watchdog.sources.trainers.table import Table

KEYS: Mapping[str, str] = {
    "trainer/epoch": "epoch",
    "policy/final_loss": "loss",
    "policy/policy_loss": "policy_loss",
    "policy/grad_norm": "grad_norm",
    "policy/policy_lr": "learning_rate",
    "policy/policy_entropy": "entropy",
    "policy/policy_kl": "kl_ref",
    "policy/loss_metrics/clip_ratio": "clip_fraction",
    "reward/avg_raw_reward": "reward_mean",
    "generate/avg_num_tokens": "completion_length_mean",
    "generate/max_num_tokens": "completion_length_max",
    "generate/min_num_tokens": "completion_length_min",
    "trainer/tokens_per_second_per_gpu": "tokens_per_second_per_gpu",
    "timing/step": "step_seconds",
    "timing/generate": "generation_seconds",
    "timing/policy_train": "training_seconds",
    "timing/fwd_logprobs_values_reward": "logprob_seconds",
    "timing/sync_weights": "weight_sync_seconds",
    "async/staleness_mean": "staleness_mean",
    "async/staleness_max": "staleness_max",
    "policy/loss_metrics/is_ratio_mean": "is_ratio_mean",
    "policy/loss_metrics/is_ratio_max": "is_ratio_max",
    "policy/loss_metrics/tis_token_clip_high_ratio": "is_out_of_bounds_fraction_high",
    "policy/loss_metrics/tis_seq_clip_high_ratio": "is_out_of_bounds_fraction_high",
    "policy/loss_metrics/token_mask_ratio": "masked_fraction_token",
    "policy/loss_metrics/geo_sequence_mask_masked_ratio": "masked_fraction_sequence",
    "policy/loss_metrics/product_sequence_mask_masked_ratio": "masked_fraction_sequence",
    "policy/loss_metrics/outlier_seq_masked_ratio": "veto_fraction",
    "policy/rollout_train_logprobs_abs_diff_mean": "logprob_difference_abs_mean",
    "policy/minibatch_rollout_logprobs_abs_diff_mean": "logprob_difference_abs_mean",
    "policy/rollout_train_logprobs_abs_diff_max": "logprob_difference_abs_max",
    "policy/minibatch_rollout_logprobs_abs_diff_max": "logprob_difference_abs_max",
    "policy/rollout_train_logprobs_abs_diff_min": "logprob_difference_abs_min",
    "policy/rollout_train_logprobs_abs_diff_std": "logprob_difference_abs_std",
    "policy/minibatch_rollout_logprobs_abs_diff_std": "logprob_difference_abs_std",
}

_HEADER = re.compile(r".*\bStep (\d+):\s*$")
_MOST_LINES = 2000


def recognises(line: str) -> bool:
    return "tracking:log" in line and _HEADER.match(line) is not None


class Dialect:
    """Reads one console."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._table = Table(KEYS, ignored=frozenset({"trainer/global_step"}))
        self._steps = StepCounter(logging_steps)
        self._stamps = text.Stamps()
        self._lines: list[str] | None = None
        self._step = 0
        self._time: float | None = None

    def feed(self, line: str) -> Iterable[Row | Event]:
        if self._lines is None and "Step " not in line:
            return ()
        return self._read(line)

    def close(self) -> Iterable[Row | Event]:
        return self._steps.last()

    def _read(self, line: str) -> Iterable[Row | Event]:
        line = text.bare(line)
        header = _HEADER.match(line) if "tracking:log" in line else None
        if header is not None:
            self._step, self._lines = int(header.group(1)), []
            self._time = self._stamps.take(line)[0]
            return ()
        if self._lines is None:
            return ()
        if not line.lstrip().startswith("{" if not self._lines else ("'", '"')):
            self._lines = None
            return ()
        self._lines.append(line)
        if not line.rstrip().endswith("}"):
            if len(self._lines) > _MOST_LINES:
                self._lines = None
            return ()
        block, self._lines = "".join(self._lines), None
        return self._steps.told(
            self._step, self._time, self._table.rows(text.python_dict(block), self._step, self._time)
        )
