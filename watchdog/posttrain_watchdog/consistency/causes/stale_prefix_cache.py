"""The engine reuses attention state that was computed with older weights."""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.consistency.chance import association, spearman
from posttrain_watchdog.consistency.divergence import Diverging, diverging
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "is the prefix cache reset after every weight update (reset_prefix_cache, flush_cache)",
    "turn prefix caching off for one step: the difference must vanish",
    "split the difference by cached tokens: sequences without a cache hit must be at the floor",
)


def judge(window: Window) -> Finding | None:
    """Sequences with cached prompt tokens diverge, sequences without do not.

    Any field of the dump whose name speaks of a cache and that varies is taken as the number of cached tokens.
    """
    split: Diverging | None = diverging(window)
    if split is None:
        return None
    for name, numbers in window.batch.extra.items():
        if "cach" not in name.lower() or len(numbers) != window.batch.sequences:
            continue
        cached = np.nan_to_num(np.asarray(numbers, np.float64)[split.rows])
        hit = cached > 0
        if hit.sum() < 3 or (~hit).sum() < 3:
            continue
        phi = association(hit, split.sequences)
        _, p = spearman(hit.astype(np.float64), split.level)
        if phi <= 0.0:
            continue
        with_cache = float(np.exp(split.level[hit].mean()))
        without = float(np.exp(split.level[~hit].mean()))
        owners = np.zeros(window.batch.sequences, np.bool_)
        owners[split.rows[hit & split.sequences]] = True
        return Finding(
            "stale_prefix_cache",
            p,
            phi,
            f"mean |d| is {with_cache:.4f} in the {int(hit.sum())} sequences with cached prompt tokens and "
            f"{without:.4f} in the {int((~hit).sum())} without",
            {
                "abs_mean_cached": with_cache,
                "abs_mean_uncached": without,
                "sequences_cached": int(hit.sum()),
                "sequences_uncached": int((~hit).sum()),
                "field": name,
            },
            CHECKS,
            len(window.d),
            window.hits_per_step(owners),
        )
    return None
