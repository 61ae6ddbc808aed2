"""LLaMA-Factory's trainer_log.jsonl (0.9.5): a fixed subset of metrics, no gradient norm and no KL."""

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
    "throughput": "tokens_per_second",
    "total_tokens": "tokens_total",
}

_IGNORED = frozenset({"current_steps", "total_steps", "percentage", "step", "elapsed_time", "remaining_time"})
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
        return self._steps.told(step, None, self._table.rows(numbers, step))
