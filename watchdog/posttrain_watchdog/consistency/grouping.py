"""What diverging sequences share: every property that the dump names is tried, and paid for in the p-value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ORDINARY = frozenset({"seq", "gen", "pack_pos", "pack_id", "max_tokens", "prompt_logprobs_missing"})
"""extra fields that number the sequences rather than describe them"""


@dataclass(slots=True)
class Partition:
    """One property, its value for each sequence as a code; -1 unknown."""

    name: str
    code: NDArray[np.int64]
    values: list[str]


def partitions(window: Window) -> list[Partition]:
    """Properties that put at least two sequences into at least one class and make at least two classes."""
    batch = window.batch
    found: list[Partition] = []

    def add(name: str, raw: NDArray[np.generic] | list[str]) -> None:
        values, code = np.unique(np.asarray(raw), return_inverse=True)
        unknown = np.asarray([str(v) in {"", "-1", "nan"} for v in values])
        code = np.where(unknown[code], -1, code).astype(np.int64)
        known = code[code >= 0]
        classes = len(np.unique(known))
        if classes >= 2 and classes <= len(known) // 2:
            found.append(Partition(name, code, [str(v) for v in values]))

    for name, texts in batch.labels.items():
        add(name, list(texts))
    if batch.prompt_ids is not None and any(len(p) for p in batch.prompt_ids):
        add("prompt", [f"prompt {crc32(p.tobytes()):08x}" if len(p) else "" for p in batch.prompt_ids])
    if batch.group is not None:
        add("group", batch.group)
    for name, numbers in batch.extra.items():
        if len(numbers) == batch.sequences and name not in _ORDINARY and "cach" not in name:
            add(name, np.asarray(numbers, np.float64))
    return found


def purity(code: NDArray[np.int64], hit: NDArray[np.bool_]) -> float:
    """Share of the variance of `hit` that lies between the classes, corrected for their number (epsilon squared)."""
    known = code >= 0
    code, value = code[known], hit[known].astype(np.float64)
    n = len(value)
    spread = float(((value - value.mean()) ** 2).sum()) if n else 0.0
    if spread <= 0:
        return 0.0
    _, compact = np.unique(code, return_inverse=True)
    count = np.bincount(compact)
    means = np.bincount(compact, value) / count
    within = float(((value - means[compact]) ** 2).sum())
    classes = len(count)
    if n <= classes:
        return 0.0
    return max(0.0, 1.0 - (within / (n - classes)) / (spread / (n - 1)))
