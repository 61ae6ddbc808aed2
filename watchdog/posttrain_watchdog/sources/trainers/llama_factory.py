"""LLaMA-Factory's trainer_log.jsonl (0.9.5; driven at ff6d4d12): a fixed subset of metrics, no gradient norm, no KL.

throughput keeps its own name: it is all tokens that the checkpoint counts over the time since this process started, so
it leaps where a run resumes and sinks from there. A prediction counts its batches in the same file, without an epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers import text
from posttrain_watchdog.sources.trainers.steps import StepCounter, whole
from posttrain_watchdog.sources.trainers.table import Table

KEYS: Mapping[str, str] = {
    "epoch": "epoch",
    "loss": "loss",
    "lr": "learning_rate",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "reward": "reward_mean",
    "total_tokens": "tokens_total",
}

_IGNORED = frozenset({"current_steps", "total_steps", "percentage", "step", "elapsed_time", "remaining_time"})
_MEASURED = frozenset({"loss", "eval_loss", "predict_loss", "reward", "accuracy", "grad_norm", "lr"})
"""A record without any of these is the last one of a training, or a prediction's."""
_STEP = re.compile(r'"current_steps"\s*:\s*(\d+)')


def recognises(line: str) -> bool:
    return line.lstrip().startswith("{") and _STEP.search(line) is not None


class Dialect:
    """Reads one trainer_log.jsonl."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._table = Table(KEYS, ignored=_IGNORED)
        self._steps = StepCounter(logging_steps)

    def feed(self, line: str) -> Iterable[Row | Event]:
        return self._read(line) if '"current_steps"' in line else ()

    def close(self) -> Iterable[Row | Event]:
        return self._steps.last()

    def _read(self, line: str) -> Iterable[Row | Event]:
        numbers = text.json_numbers(line)
        step = whole(numbers.get("current_steps")) if numbers else None
        if numbers is None or step is None:
            return ()
        if _MEASURED.isdisjoint(numbers):
            return self._over(line) if "epoch" in numbers and step == whole(numbers.get("total_steps")) else ()
        return self._steps.told(step, None, self._table.rows(numbers, step))

    def _over(self, line: str) -> list[Row | Event]:
        return [*self._steps.last(), Event("run_finished", line[:200], {}, self._steps.step)]
