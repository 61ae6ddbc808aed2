"""The trainer scores the tokens after a different prefix than the engine had (template, cut or inserted text)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.chance import association, normal_tail
from posttrain_watchdog.consistency.divergence import Diverging, at_baseline, diverging
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHECKS = (
    "token ids of prompt and earlier turns on both sides, side by side, up to the first diverging position",
    "chat template applied twice, thinking of earlier turns dropped, tool output cut or inserted on one side",
    "truncation of long prompts: left or right, and to which length, on each side",
)
_SHUFFLES = 24


def judge(window: Window) -> Finding | None:
    """Inside a sequence d is at the floor up to some position and off after it.

    For each sequence the split that separates diverging tokens best is taken, and the association of "diverges" with
    "after the split" over all tokens is compared with what the same search finds in shuffled sequences: sparse or
    even divergence (routing, stale weights) has no such position.
    """
    split: Diverging | None = diverging(window)
    if split is None:
        return None
    off = split.tokens
    some = np.bincount(window.of[off], minlength=window.batch.sequences) > 0
    use = some[window.of]
    if use.sum() < 16:
        return None
    of, hit = window.of[use], off[use]
    found, first, after = _association(of, hit)
    random = np.random.default_rng(0)
    chance = np.array([_association(of, _shuffled(random, of, hit))[0] for _ in range(_SHUFFLES)])
    middle, spread = float(chance.mean()), float(chance.std(ddof=1)) or 1e-9
    before = ~after
    explained = max(0.0, (found - middle) / (1.0 - middle)) ** 2 * split.energy
    explained *= at_baseline(window, float(np.abs(window.d[use][before]).mean())) if before.any() else 0.0
    affected = np.zeros(window.batch.sequences, np.bool_)
    affected[np.unique(of)[first > 0]] = True
    count = int(affected.sum())
    if not count:
        return None
    return Finding(
        "context_mismatch",
        normal_tail((found - middle) / spread),
        explained,
        f"in {count} of {int(some.sum())} diverging sequences both sides agree up to some position (median "
        f"{int(np.median(first[first > 0]))}) and differ after it",
        {
            "sequences": count,
            "diverging_sequences": int(some.sum()),
            "first_diverging_token": float(np.median(first[first > 0])),
            "association": found,
            "association_by_chance": middle,
        },
        CHECKS,
        len(window.d),
        window.hits_per_step(affected),
    )


def _shuffled(
    random: np.random.Generator,
    of: NDArray[np.int64],
    hit: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """hit with the tokens of each sequence in random order"""
    order = np.lexsort((random.random(len(of)), of))
    return hit[order]


def _association(of: NDArray[np.int64], hit: NDArray[np.bool_]) -> tuple[float, NDArray[np.int64], NDArray[np.bool_]]:
    """(phi of "hit" and "after its sequence's best split", [R] that split, 0: all of it after; [N] after the split).

    The best split of a sequence has the largest number of hits after it less misses after it.
    """
    starts = np.flatnonzero(np.concatenate([[True], of[1:] != of[:-1]]))
    lengths = np.diff(np.concatenate([starts, [len(of)]]))
    gain = np.where(hit, 1.0, -1.0)
    total = np.concatenate([[0.0], np.cumsum(gain)])
    before = total[:-1] - np.repeat(total[starts], lengths)
    # gain after the split at i = all - before; the least `before` is the best split, the earliest of equals
    least = np.minimum.reduceat(before, starts)
    place = np.arange(len(of)) - np.repeat(starts, lengths)
    at_least = np.where(before == np.repeat(least, lengths), place, np.iinfo(np.int64).max)
    first = np.minimum.reduceat(at_least, starts)
    after = place >= np.repeat(first, lengths)
    return association(hit, after), first, after
