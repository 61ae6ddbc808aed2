"""TRL's console: one dict a logged step, in text of every kind (trl 1.16.0, transformers 4.57 to 5.24).

transformers 5 prints floats as quoted four-digit strings, 4.x as bare numbers; a step is printed only by scripts
that add it. The importance-ratio keys are taken after clamping or masking, so they are the applied weights here.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers import text
from posttrain_watchdog.sources.trainers.shaped import Shaped
from posttrain_watchdog.sources.trainers.steps import StepCounter, whole
from posttrain_watchdog.sources.trainers.table import MOST_SHAPES, Table

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
_BAR = re.compile(r"(?:^|\r)\s*\d{1,3}%\|[^|\r]*\|\s*(\d+)/(\d+) \[")
_RAW_MODE = "runs with `--logprobs-mode raw_logprobs`"
_IGNORED = frozenset({"step", "train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos"})
_OWN = frozenset({*KEYS, *ASYNC_KEYS, "step", "train_runtime", "train_loss", "eval_loss", "eval_runtime"})
_SURE = ("grad_norm", "reward", "learning_rate", "epoch", "num_tokens", "train_runtime", "step", "kl", "entropy")
_CORE = frozenset({"loss", "grad_norm", "learning_rate", "epoch"})
_MOST_WRAPPED = 40
"""Lines over which a terminal may have broken one dict."""
_MOST_EPOCHS = 1_000_000
_SLACK = 8
"""An epoch may lie so many usual distances ahead."""


def recognises(line: str) -> bool:
    """A dict line that starts as the HF trainer's do and carries at least one more of its keys."""
    body = text.rank(text.stamp(text.bare(line))[1])[1]
    return _HEAD.match(body) is not None and sum(f"'{k}'" in body or f'"{k}"' in body for k in _SURE) >= 2


_Plan = tuple[Table, int | None, int | None]
"""Table, place of the step and place of the epoch among a record's values."""


@dataclass(slots=True)
class _Record:
    keys: tuple[str, ...]
    values: Sequence[float | None]
    table: Table
    time: float | None

    def rows(self, step: int) -> list[Row | Event]:
        return self.table.aligned(self.keys, self.values, step, self.time)


class Dialect:
    """Reads one console."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._table = Table(KEYS, ignored=_IGNORED)
        self._async = Table({**KEYS, **ASYNC_KEYS}, ignored=_IGNORED)
        self._steps = StepCounter(logging_steps)
        self._stamps = text.Stamps()
        self._shaped = Shaped()
        self._plans: dict[tuple[str, ...], _Plan | None] = {}
        self._wrapped: list[str] = []
        self._bar: tuple[int, int] | None = None
        self._bars_total = 0
        self._epochs: list[tuple[float, int]] = []
        self._stride = 0.0
        self._held: tuple[float, _Record] | None = None

    def feed(self, line: str) -> Iterable[Row | Event]:
        if "%|" in line and (bars := _BAR.findall(line)):
            self._note_bar(int(bars[-1][0]), int(bars[-1][1]))
        if self._wrapped:
            return self._unwrapped(line)
        if "{" not in line:
            return [Event("logprobs_mode_raw_warning", line.strip()[:500])] if _RAW_MODE in line else ()
        return self._read(line)

    def close(self) -> Iterable[Row | Event]:
        return self._last()

    def _last(self) -> list[Row | Event]:
        """What nothing can confirm any more: a held record that has the keys of those before it."""
        held, self._held = self._held, None
        if held is None or not self._steps.usual(held[1].keys):
            return self._steps.last()
        return [*self._gone_back(*held), *self._at_epoch(*held), *self._steps.last()]

    def _note_bar(self, done: int, total: int) -> None:
        """The trainer's own bar is the longest one; those of an evaluation are shorter."""
        if total >= self._bars_total:
            self._bar, self._bars_total = (done, total), total

    def _unwrapped(self, line: str) -> Iterable[Row | Event]:
        if _HEAD.match(line) or len(self._wrapped) >= _MOST_WRAPPED or len(line) > 4096:
            self._wrapped = []
            return self._read(line)
        self._wrapped.append(line)
        if "}" not in line:
            return ()
        whole_line, self._wrapped = "".join(self._wrapped), []
        return self._read(whole_line)

    def _read(self, line: str) -> Iterable[Row | Event]:
        line = text.bare(line)
        time: float | None = None
        if not line.startswith("{"):
            time, line = self._stamps.take(line)
            line = text.rank(line)[1]
        if _HEAD.match(line) is None:
            return ()
        end = line.find("}")
        if end < 0:
            self._wrapped = [line] if len(line) < 4096 else []
            return ()
        values = self._shaped.values(line[: end + 1].replace("'", '"'))
        if values is not None:
            return self._record(self._shaped.keys, values, line, time)
        numbers = text.python_dict(line)
        keys = tuple(numbers)
        self._shaped.learn(keys)
        return self._record(keys, tuple(numbers.values()), line, time)

    def _record(
        self, keys: tuple[str, ...], values: Sequence[float | None], line: str, time: float | None
    ) -> Iterable[Row | Event]:
        plan = self._plans[keys] if keys in self._plans else self._plan(keys)
        if plan is None:
            if "train_runtime" in keys:
                self._bar, self._bars_total = None, 0  # another run's may be shorter
                return [*self._last(), Event("run_finished", line[:300], {}, self._steps.step, time)]
            return ()
        table, step_place, epoch_place = plan
        step = None if step_place is None else whole(values[step_place])
        if step is None and not line.endswith("}"):
            remark = _REMARK.search(line)
            step = int(remark.group(1)) if remark is not None else None
        if step is not None:
            return self._steps.told(step, time, table.aligned(keys, values, step, time))
        record = _Record(keys, values, table, time)
        epoch = None if epoch_place is None else values[epoch_place]
        return self._counted(record) if epoch is None else self._told_by_epoch(epoch, record)

    def _plan(self, keys: tuple[str, ...]) -> _Plan | None:
        """How records with these keys are read; None for what is no record of a step."""
        foreign = len(_OWN.intersection(keys)) < 2 or "train_runtime" in keys
        foreign = foreign or ("step" in keys and self._steps.counts)
        evaluation = "loss" not in keys and any(key.startswith("eval_") for key in keys)
        plan: _Plan | None = None
        if not (foreign or evaluation or ("step" not in keys and not self._is_ours(keys))):
            table = self._async if "sample/staleness_mean" in keys or "perf/step_s" in keys else self._table
            plan = (table, _place(keys, "step"), _place(keys, "epoch"))
        if len(self._plans) < MOST_SHAPES:
            self._plans[keys] = plan
        return plan

    def _is_ours(self, keys: tuple[str, ...]) -> bool:
        """Steps without a new generation print fewer metrics, but never fewer than the HF trainer's own."""
        return self._steps.usual(keys) or _CORE.issubset(keys)

    def _told_by_epoch(self, epoch: float, record: _Record) -> list[Row | Event]:
        """A record without a step: an epoch that does not follow on is believed if the next record goes on from it."""
        held, follows = self._held, self._follows(epoch)
        if held is not None and follows and held[0] < epoch <= self._epochs[-1][0]:
            follows = False  # behind the last record, and ahead of the one that is held
        if follows:
            self._held = None
            return self._at_epoch(epoch, record)
        if self._bar is not None and epoch < self._epochs[-1][0] and self._bar[0] < (self._steps.step or 0):
            self._held = None  # the bar went back as well
            return [*self._gone_back(epoch, record), *self._at_epoch(epoch, record)]
        if held is None or epoch < held[0]:
            self._held = (epoch, record)
            return []
        self._held = None
        return [*self._gone_back(*held), *self._at_epoch(*held), *self._at_epoch(epoch, record)]

    def _gone_back(self, epoch: float, record: _Record) -> list[Row | Event]:
        """Goes back to where the epoch was reached first, and says so; nothing where it lies ahead."""
        if epoch >= self._epochs[-1][0]:
            return []
        place = bisect_left(self._epochs, (epoch, -1))
        before, step = self._steps.step, self._epochs[place - 1][1] if place else 0
        del self._epochs[place:]
        if self._bar is not None and self._bar[0] >= (before or 0):
            self._bar = None  # drawn before the run went back
        self._steps.step = step
        first = step + 1 if self._bar is None else self._bar[0] or step + 1
        told = f"steps go back from {before} to {first}"
        return [Event("resumed", told, {"step": str(first)}, first, record.time)]

    def _follows(self, epoch: float) -> bool:
        if not self._epochs:
            return True
        last = self._epochs[-1][0]
        # two decimals are all that transformers 4 prints
        return last <= epoch <= last + (_SLACK * max(self._stride, 0.01) if self._stride else math.inf)

    def _at_epoch(self, epoch: float, record: _Record) -> list[Row | Event]:
        found = self._counted(record)
        if self._epochs and epoch - self._epochs[-1][0] > self._stride:
            self._stride = epoch - self._epochs[-1][0]
        if self._steps.step is not None and len(self._epochs) < _MOST_EPOCHS:
            self._epochs.append((epoch, self._steps.step))
        return found

    def _counted(self, record: _Record) -> list[Row | Event]:
        """A record without a step: the bar tells it where there is one, else records are counted."""
        before = self._steps.step
        step = self._steps.counted()
        if self._bar is None:
            return record.rows(step)
        done, self._bar = self._bar[0], None
        resumed: list[Row | Event] = []
        # a bar that was not redrawn yet is one record behind
        if done > step or 0 < done < (before or 0):
            if before is not None and done < before:
                told = f"steps go back from {before} to {done}"
                resumed = [Event("resumed", told, {"step": str(done)}, done, record.time)]
            step = self._steps.step = done
        return [*resumed, *record.rows(step)]


def _place(keys: tuple[str, ...], key: str) -> int | None:
    return keys.index(key) if key in keys else None
