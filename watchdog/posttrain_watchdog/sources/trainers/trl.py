"""TRL's console: one dict a logged step, in text of every kind (trl 1.16.0, transformers 4.57 to 5.24).

transformers 5 prints floats as quoted four-digit strings, 4.x as bare numbers; a step is printed only by scripts
that add it. The importance-ratio keys are taken after clamping or masking, so they are the applied weights here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers import text
from posttrain_watchdog.sources.trainers.steps import StepCounter, whole
from posttrain_watchdog.sources.trainers.table import Table

KEYS: Mapping[str, str] = {
    "epoch": "epoch",
    "loss": "loss",
    "policy_loss": "policy_loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy": "entropy",
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
    "num_tokens": "tokens_total",
    "step_time": "step_seconds",
    "sampling/importance_sampling_ratio/mean": "is_weight_mean",
    "sampling/importance_sampling_ratio/min": "is_weight_min",
    "sampling/importance_sampling_ratio/max": "is_weight_max",
    "sampling/sampling_logp_difference/mean": "logprob_difference_abs_mean",
    "sampling/sampling_logp_difference/max": "logprob_difference_abs_max",
    "completions/mean_terminated_length": "terminated_length_mean",
    "completion_length": "completion_length_mean",
}

ASYNC_KEYS: Mapping[str, str] = {
    "ratio": "is_ratio_mean",
    "kl": "mismatch_kl_k3",
    "sample/staleness_mean": "staleness_mean",
    "sample/staleness_max": "staleness_max",
    "sample/dropped_stale_total": "stale_dropped",
    "perf/step_s": "step_seconds",
    "perf/fwd_bwd_s": "training_seconds",
    "perf/rollout_wait_s": "wait_seconds",
    "perf/weight_sync_s": "weight_sync_seconds",
    "weight_sync_time_s": "weight_sync_seconds",
    "perf/trained_tok_s_wall_clock": "tokens_per_second",
    "training_tok/s": "tokens_per_second",
    "perf/mfu_wall_clock": "mfu",
    "batch/trained_tokens_per_step": "tokens_total",
}
"""experimental/async_grpo: `kl` is k3 against the engine there, not against the reference."""

_HEAD = re.compile(
    r"""\s*\{(?:'(?:loss|train_runtime|train_loss|eval_\w+|reward|grad_norm|step|num_tokens)'|"(?:loss|train_runtime)")\s*:"""
)
_REMARK = re.compile(r"\}\s*#\s*step\s+(\d+)\s*$")
_RAW_MODE = "runs with `--logprobs-mode raw_logprobs`"
_IGNORED = frozenset({"step", "train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos"})
_OWN = frozenset({*KEYS, *ASYNC_KEYS, "step", "train_runtime", "train_loss", "eval_loss", "eval_runtime"})
_SURE = ("grad_norm", "reward", "learning_rate", "epoch", "num_tokens", "train_runtime", "step", "kl", "entropy")


def recognises(line: str) -> bool:
    """A dict line that starts as the HF trainer's do and carries at least one more of its keys."""
    _, body = text.stamp(text.bare(line))
    return _HEAD.match(body) is not None and sum(f"'{k}'" in body or f'"{k}"' in body for k in _SURE) >= 2


class Dialect:
    """Reads one console."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._table = Table(KEYS, ignored=_IGNORED)
        self._async = Table({**KEYS, **ASYNC_KEYS}, ignored=_IGNORED)
        self._steps = StepCounter(logging_steps)

    def feed(self, line: str) -> Iterable[Row | Event]:
        if "{" not in line and _RAW_MODE not in line:
            return ()
        return self._read(line)

    def _read(self, line: str) -> Iterator[Row | Event]:
        if _RAW_MODE in line:
            yield Event("logprobs_mode_raw_warning", line.strip()[:500])
            return
        line = text.bare(line)
        time: float | None = None
        if not line.startswith("{"):
            time, line = text.stamp(line)
        if _HEAD.match(line) is None or "}" not in line:
            return
        numbers = text.python_dict(line)
        if sum(value is not None for key, value in numbers.items() if key in _OWN) < 2:
            return
        if "train_runtime" in numbers:
            yield Event("run_finished", line[:300], {}, self._steps.step, time)
            return
        if any(key.startswith("eval_") for key in numbers) and "loss" not in numbers:
            return
        step = whole(numbers.get("step"))
        remark = _REMARK.search(line)
        if step is None and remark is not None:
            step = int(remark.group(1))
        if step is None:
            step = self._steps.counted()
        else:
            yield from self._steps.told(step, time)
        table = self._async if "sample/staleness_mean" in numbers or "perf/step_s" in numbers else self._table
        yield from table.rows(numbers, step, time)

    def close(self) -> Iterable[Row | Event]:
        return ()
