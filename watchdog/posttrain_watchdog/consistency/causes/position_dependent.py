"""The error follows padding: position ids that count it, or attention that sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from posttrain_watchdog.consistency.chance import spearman
from posttrain_watchdog.consistency.divergence import Diverging, diverging
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHECKS = (
    "position_ids derived from the attention mask, not from the column of the padded batch",
    "score one short sequence alone, without padding: the difference must vanish",
    "does the model have absolute positions, and does the attention mask reach every layer",
)


def judge(window: Window) -> Finding | None:
    """Rank correlation of a sequence's mean |d| with the padding before it.

    Left padding of a sequence = the longest prompt of its batch less its own; the batch is taken to be the step.
    """
    split: Diverging | None = diverging(window)
    lengths = window.batch.prompt_length
    if split is None or lengths is None or len(split.rows) < 8:
        return None
    prompt = lengths[split.rows]
    if (prompt < 0).any() or len(np.unique(prompt)) < 4:
        return None
    step = window.batch.step[split.rows]
    padding = np.zeros(len(prompt))
    for each in np.unique(step):
        at = step == each
        padding[at] = prompt[at].max() - prompt[at]
    # one prompt gives one padding and often one level: prompts, not sequences, are the independent units
    _, prompts = np.unique(np.stack([step, prompt, _prompt(window, split.rows)]), axis=1, return_inverse=True)
    prompts = prompts.ravel()
    count = np.bincount(prompts)
    r, p = spearman(np.bincount(prompts, padding) / count, np.bincount(prompts, split.level) / count)
    if r <= 0.0:
        return None
    own = spearman(window.lengths[split.rows], split.level)[0]
    return Finding(
        "position_dependent",
        p,
        r * abs(r),
        f"the difference of a sequence grows with the padding before it (rank correlation {r:.2f} over "
        f"{len(prompt)} sequences; with its own length {own:+.2f})",
        {"rank_correlation": r, "with_own_length": own, "sequences": len(prompt)},
        CHECKS,
        len(window.d),
        dict.fromkeys(window.steps, 1.0),
    )


def _prompt(window: Window, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """[R] which prompt, as far as the dump tells: its group, else its ids, else each sequence its own"""
    if window.batch.group is not None and (window.batch.group[rows] >= 0).all():
        return window.batch.group[rows]
    ids = window.batch.prompt_ids
    if ids is not None:
        return np.array([crc32(ids[int(i)].tobytes()) for i in rows], np.int64)
    return rows
