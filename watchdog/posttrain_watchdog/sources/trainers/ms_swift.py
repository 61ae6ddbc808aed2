"""ms-swift's logging.jsonl and console dicts (4.6.0; driven at 3602360a): the step is a text, "12/400".

rollout_correction/kl is mean(-d), the canonical k1; is_weight_mean is the applied weight; sequence ratios are
geometric means there. train_speed is a mean since the process started. The record with the run time says that the run
is over, in the file as on the console; a second object says so once more in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers import text
from posttrain_watchdog.sources.trainers.steps import StepCounter
from posttrain_watchdog.sources.trainers.table import Table

KEYS: Mapping[str, str] = {
    "epoch": "epoch",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy/mean": "entropy",
    "kl": "kl_ref",
    "clip_ratio/region_mean": "clip_fraction",
    "clip_ratio": "clip_fraction",
    "cispo_clip_ratio": "clip_fraction",
    "clip_ratio/low_mean": "clip_fraction_low",
    "clip_ratio/high_mean": "clip_fraction_high",
    "reward": "reward_mean",
    "reward_std": "reward_std",
    "frac_reward_zero_std": "zero_std_fraction",
    "completions/mean_length": "completion_length_mean",
    "completions/max_length": "completion_length_max",
    "completions/min_length": "completion_length_min",
    "completions/clipped_ratio": "truncated_fraction",
    "train_speed(s/it)": "step_seconds",
    "MFU": "mfu",
    "rollout_correction/is_weight_mean": "is_weight_mean",
    "rollout_correction/clipped_frac": "is_out_of_bounds_fraction",
    "rollout_correction/ess": "effective_sample_size",
    "rollout_correction/kl": "mismatch_kl_k1",
    "rollout_correction/k3_kl": "mismatch_kl_k3",
    "rollout_correction/log_ppl_diff": "log_perplexity_gap",
    "rollout_correction/log_ppl_abs_diff": "log_perplexity_gap_abs",
    "rollout_correction/ppl_ratio": "perplexity_ratio",
    "rollout_correction/training_ppl": "trainer_perplexity",
    "rollout_correction/rollout_ppl": "rollout_perplexity",
    "rollout_correction/chi2_token": "chi2_token",
    "rollout_correction/chi2_seq": "chi2_sequence",
}

_MORE: Mapping[str, str] = {
    "completion_length": "completion_length_mean",
    "response_clip_ratio": "truncated_fraction",
    "completions/mean_terminated_length": "terminated_length_mean",
}
"""Keys of 3.x that the knowledge base does not list."""
_STEP = re.compile(r"""['"](?:global_step/max_steps|iteration)['"]\s*:\s*['"](\d+)/\d+['"]""")
_IGNORED = frozenset({"global_step/max_steps", "iteration", "train_speed(iter/s)", "elapsed_time", "remaining_time"})
_RATE = "train_speed(iter/s)"


def recognises(line: str) -> bool:
    body = text.bare(line).lstrip()
    return body.startswith("{") and _STEP.search(body) is not None


class Dialect:
    """Reads one logging.jsonl or console."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._table = Table({**KEYS, **_MORE}, ignored=_IGNORED)
        self._steps = StepCounter(logging_steps)
        self._finished = False

    def feed(self, line: str) -> Iterable[Row | Event]:
        return self._read(line) if "{" in line else ()

    def close(self) -> Iterable[Row | Event]:
        return self._steps.last()

    def _read(self, line: str) -> Iterable[Row | Event]:
        line = text.bare(line).lstrip()
        if not line.startswith("{"):
            return ()
        if '"last_model_checkpoint"' in line and '"log_history"' in line:
            return self._over(line)
        match = _STEP.search(line)
        if match is None:
            return ()
        numbers = text.json_numbers(line) if '"' in line[:3] else None
        if numbers is None:
            numbers = text.python_dict(line)
        rate = numbers.get(_RATE)
        if rate and "train_speed(s/it)" not in numbers:
            numbers["train_speed(s/it)"] = 1.0 / rate
        step = int(match.group(1))
        if "train_runtime" in numbers:
            return self._over(line)
        self._finished = False
        return self._steps.told(step, None, self._table.rows(numbers, step))

    def _over(self, line: str) -> list[Row | Event]:
        found = self._steps.last()
        if not self._finished:
            found.append(Event("run_finished", line[:200], {}, self._steps.step))
        self._finished = True
        return found
