"""trainer_state.json of the HF Trainer: the whole log history, written anew at every checkpoint.

Full precision, bare NaN and Infinity; steps are told. Pure text in, rows out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers.steps import whole
from posttrain_watchdog.sources.trainers.table import Table
from posttrain_watchdog.sources.trainers.text import flattened
from posttrain_watchdog.sources.trainers.trl import KEYS

_IGNORED = frozenset({"step", "total_flos", "train_runtime", "train_samples_per_second", "train_steps_per_second"})


def read(content: str, after: int = -1) -> Iterator[Row | Event]:
    """Rows of the steps behind `after`. Raises ValueError for text that is no such file (or half written)."""
    try:
        state: Any = json.loads(content)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: expected trainer_state.json: {error.msg}") from None
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        raise ValueError("line 1: expected an object with log_history")
    table = Table(KEYS, ignored=_IGNORED)
    for entry in state["log_history"]:
        if not isinstance(entry, dict):
            continue
        numbers = flattened(entry)
        step = whole(numbers.get("step"))
        if step is None or step <= after or ("loss" not in numbers and "grad_norm" not in numbers):
            continue
        yield from table.rows(numbers, step)
