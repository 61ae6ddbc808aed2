"""The two sides hold a different number of tokens."""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.consistency.finding import Finding, counted
from posttrain_watchdog.consistency.tokenisation import differing_ids, uneven_lengths
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "number of tokens the engine returned against the number the trainer scored, sequence by sequence",
    "who cuts: a length limit, stripped stop tokens, or a slice off by one in the trainer",
    "does the text go through a decode and encode between engine and trainer",
)


def judge(window: Window) -> Finding | None:
    """Lengths differ and the token ids, where both sides have them, agree as far as the shorter one goes."""
    hit = uneven_lengths(window)
    engine, trainer = window.batch.engine_length, window.batch.trainer_length
    different = differing_ids(window)
    if engine is None or trainer is None or not hit.any():
        return None
    total = int(hit.sum())
    if different is not None:
        hit = hit & ~different
    count = int(hit.sum())
    if not count:
        return None
    gap = (trainer - engine)[hit]
    return Finding(
        "length_mismatch",
        0.0,
        counted(count, total),
        f"{count} of {window.batch.sequences} sequences have a different number of tokens on the two sides "
        f"(trainer minus engine: median {float(np.median(gap)):+.0f})",
        {"sequences": count, "median_gap": float(np.median(gap)), "largest_gap": float(np.abs(gap).max())},
        CHECKS,
        window.batch.tokens,
        window.hits_per_step(hit),
    )
