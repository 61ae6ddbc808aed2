"""Any log that says a step and numbers: JSON lines, `key=value`, CSV, tables with bars.

The last resort: keys that many loggers share get canonical names, all others are kept as they are. A record counts
only with a step. Where every rank prints its own values of one step, those of rank 0 (or of the first that prints)
are taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers import text
from posttrain_watchdog.sources.trainers.shaped import Shaped
from posttrain_watchdog.sources.trainers.steps import StepCounter, whole
from posttrain_watchdog.sources.trainers.table import MOST_SHAPES, Table

KEYS: Mapping[str, str] = {
    "loss": "loss",
    "train_loss": "loss",
    "train/loss": "loss",
    "Training Loss": "loss",
    "policy_loss": "policy_loss",
    "loss/policy": "policy_loss",
    "pg_loss": "policy_loss",
    "train/pg_loss": "policy_loss",
    "actor/pg_loss": "policy_loss",
    "grad_norm": "grad_norm",
    "train/grad_norm": "grad_norm",
    "actor/grad_norm": "grad_norm",
    "optim/grad_norm": "grad_norm",
    "lr": "learning_rate",
    "learning_rate": "learning_rate",
    "train/lr": "learning_rate",
    "actor/lr": "learning_rate",
    "entropy": "entropy",
    "train/entropy": "entropy",
    "actor/entropy": "entropy",
    "kl": "kl_ref",
    "train/kl": "kl_ref",
    "actor/ppo_kl": "ppo_kl",
    "ppo_kl": "ppo_kl",
    "reward": "reward_mean",
    "train/reward": "reward_mean",
    "reward_mean": "reward_mean",
    "critic/rewards/mean": "reward_mean",
    "critic/score/mean": "reward_mean",
    "reward_std": "reward_std",
    "frac_reward_zero_std": "zero_std_fraction",
    "completions/mean_length": "completion_length_mean",
    "response_length/mean": "completion_length_mean",
    "completions/clipped_ratio": "truncated_fraction",
    "response_length/clip_ratio": "truncated_fraction",
    "step_time": "step_seconds",
    "timing_s/step": "step_seconds",
    "time/step": "step_seconds",
    "tokens_per_second": "tokens_per_second",
    "throughput/tokens_per_second": "tokens_per_second",
    "throughput/device/tokens_per_second": "tokens_per_second_per_gpu",
    "critic/explained_var": "value_explained_variance",
    "critic/vf_explained_var": "value_explained_variance",
    "critic/loss": "value_loss",
    "critic/vf_loss": "value_loss",
    "token_mult_prob_error": "mult_prob_error",
    "mismatch_kl": "mismatch_kl_k3",
    "epoch": "epoch",
}

STEP_KEYS = (
    "step",
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "training/global_step",
    "iteration",
    "current_steps",
    "_step",
)
"""In order: what the trainer counts comes before what a tracker counts (its `_step` is one a call)."""
TIME_KEYS = ("_timestamp", "timestamp", "time", "wall_time")
_IGNORED = frozenset({*STEP_KEYS, *TIME_KEYS, "_runtime", "rank"})
_TELLING = 8
"""Keys of a record from which its trainer is told for good."""
_TRIES = 3
"""Sets of fewer keys that are tried before one of them stays."""
_SAMPLE_KEYS = frozenset({"completion", "completions", "prompt", "response", "output", "messages", "token_ids"})
"""Keys of records that are one sample of a step, not the step's metrics."""
_HEADED = re.compile(r"(?:\[rank(\d+)\]:? )?(.{0,120}?)\[?step[=: ]+(\d+)(?:/\d+)?\]?\s*$")
_INDENTED = re.compile(r"\s{2,}([\w./@%\-]+)\s*[=:]\s*(\S+)\s*$")
_INLINE = re.compile(r"(?<![\w/])([A-Za-z_][\w./@\-]*)\s?=\s?([-+\w.,%()]+)")
_CELLS = re.compile(r"\s*\|\s*")


def recognises(line: str) -> bool:
    """Never sure: this dialect is taken where no other speaks up."""
    return False


class Dialect:
    """Reads one file of an unknown logger."""

    def __init__(self, logging_steps: int = 1, table_for: Callable[[Collection[str]], Table] | None = None) -> None:
        """`table_for` gives the table for records with these keys: exports of trackers hold a trainer's own."""
        self._table_for = table_for
        self._table = Table(KEYS, ignored=_IGNORED)
        self._steps = StepCounter(logging_steps)
        self._tries = _TRIES
        self._shaped = Shaped()
        self._places: dict[tuple[str, ...], tuple[tuple[int, ...], int | None] | None] = {}
        self._header: list[str] | None = None
        self._separator = ","
        self._block: text.Numbers = {}
        self._block_step: int | None = None
        self._block_rank: int | None = None
        self._block_time: float | None = None
        self._ranks_done: int | None = None
        """the last step that rank 0 printed"""
        self._spare: tuple[int, int, float | None, text.Numbers] | None = None

    def feed(self, line: str) -> Iterable[Row | Event]:
        line = text.bare(line).rstrip("\n")
        if line.startswith("{") and line.endswith("}"):
            values = self._shaped.values(line)
            if values is not None:
                return self._aligned(self._shaped.keys, values, None)
            numbers = text.json_numbers(line)
            if numbers is None:
                numbers = text.python_dict(line)
            self._shaped.learn(tuple(numbers))
            return self._record(numbers)
        return self._read(line)

    def _read(self, line: str) -> Iterator[Row | Event]:
        body = line.lstrip()
        if body.startswith("{") and body.rstrip().endswith("}"):
            numbers = text.json_numbers(body)
            yield from self._record(text.python_dict(body) if numbers is None else numbers)
            return
        indented = _INDENTED.match(line)
        if indented is not None and self._block_step is not None:
            self._block[indented.group(1)] = text.number(indented.group(2))
            return
        yield from self._finished()
        if self._cells(line):
            yield from self._cell_record(line)
            return
        headed = _HEADED.match(line) if len(line) < 400 else None
        if headed is not None:
            self._begin_block(headed)
            return
        if "=" in line and "step" in line and len(line) < 20_000:
            pairs: text.Numbers = {k: text.number(v.rstrip(",")) for k, v in _INLINE.findall(line)}
            time, _ = text.stamp(line)
            yield from self._record(pairs, time)

    def _begin_block(self, headed: re.Match[str]) -> None:
        self._block_rank = None if headed.group(1) is None else int(headed.group(1))
        self._block_time = text.stamp(headed.group(2))[0]
        self._block_step = int(headed.group(3))

    def _cells(self, line: str) -> bool:
        """Whether the line belongs to a table, whose head is kept."""
        for separator in ("|", ","):
            parts = _split(line, separator)
            if len(parts) < 2:
                continue
            lowered = [p.lower() for p in parts]
            named = any(p in STEP_KEYS for p in lowered) and all(text.number(p) is None for p in parts)
            if named and (self._header is None or "step" in lowered):
                self._header, self._separator = parts, separator
                return False
        return self._header is not None and len(_split(line, self._separator)) == len(self._header)

    def _cell_record(self, line: str) -> Iterator[Row | Event]:
        parts = _split(line, self._separator)
        named = dict(zip(self._header or (), parts, strict=True))
        numbers: text.Numbers = {(k.lower() if k.lower() in STEP_KEYS else k): text.number(v) for k, v in named.items()}
        yield from self._record(numbers)

    def _record(self, numbers: text.Numbers, time: float | None = None) -> list[Row | Event]:
        return self._aligned(tuple(numbers), tuple(numbers.values()), time)

    def _aligned(self, keys: tuple[str, ...], values: Sequence[float | None], time: float | None) -> list[Row | Event]:
        found = self._places[keys] if keys in self._places else self._find(keys)
        if found is None:
            return []
        steps, time_place = found
        step = whole(values[steps[0]])
        if step is None:
            step = next((s for place in steps if (s := whole(values[place])) is not None), None)
            if step is None:
                return []
        told = None if time_place is None else values[time_place]
        if told is not None and told > 1e8:
            time = told
        return self._steps.told(step, time, self._table.aligned(keys, values, step, time))

    def _find(self, keys: tuple[str, ...]) -> tuple[tuple[int, ...], int | None] | None:
        """Where records with these keys have their step and time; None for what is no record of a step."""
        steps = tuple(keys.index(key) for key in STEP_KEYS if key in keys)
        found: tuple[tuple[int, ...], int | None] | None = None
        if steps and len(keys) > 1 and _SAMPLE_KEYS.isdisjoint(keys):
            found = (steps, next((keys.index(key) for key in TIME_KEYS if key in keys), None))
        if found is not None and self._table_for is not None and self._tries:
            self._table = self._table_for(keys)
            self._tries = 0 if len(keys) > _TELLING else self._tries - 1
        if len(self._places) < MOST_SHAPES:
            self._places[keys] = found
        return found

    def close(self) -> Iterable[Row | Event]:
        return [*self._finished(), *self._spared(), *self._steps.last()]

    def _finished(self) -> list[Row | Event]:
        """The block that ends here. Of several ranks' blocks for one step that of rank 0 counts, else the lowest."""
        block, self._block = self._block, {}
        step, self._block_step = self._block_step, None
        if not block or step is None:
            return []
        rank, time = self._block_rank, self._block_time
        if rank is None or rank == 0:
            self._ranks_done = step if rank == 0 else None
            self._spare = None
            return self._steps.told(step, time, self._table.rows(block, step, time))
        found = self._spared() if self._spare is not None and self._spare[1] != step else []
        if step != self._ranks_done and (self._spare is None or rank < self._spare[0]):
            self._spare = (rank, step, time, block)
        return found

    def _spared(self) -> list[Row | Event]:
        """The block of another rank, for a step that rank 0 printed nothing of; never once rank 0 has printed."""
        spare, self._spare = self._spare, None
        if spare is None or self._ranks_done is not None:
            return []
        _, step, time, block = spare
        return self._steps.told(step, time, self._table.rows(block, step, time))


def _split(line: str, separator: str) -> list[str]:
    if separator not in line:
        return []
    return [p.strip() for p in (_CELLS.split(line.strip().strip("|")) if separator == "|" else line.split(separator))]
