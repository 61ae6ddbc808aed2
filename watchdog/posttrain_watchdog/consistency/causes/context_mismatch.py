"""The trainer scores the tokens after a different prefix than the engine had (template, cut or inserted text)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.chance import normal_tail
from posttrain_watchdog.consistency.divergence import Diverging, at_baseline, diverging
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.history import Course, course
from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHECKS = (
    "token ids of prompt and earlier turns on both sides, side by side, up to the first diverging position",
    "chat template applied twice, thinking of earlier turns dropped, tool output cut or inserted on one side",
    "truncation of long prompts: left or right, and to which length, on each side",
)


def judge(window: Window) -> Finding | None:
    """Inside a sequence d is at the floor up to some position and off after it.

    If the tokens of a sequence diverged independently, at the rate r that is seen after its first diverging token,
    that first one would come after (1 - r) / r tokens on average (geometric). After another prefix most tokens
    diverge, so r is large and that number small, while the agreeing beginning is as long as the common prefix.
    Sparse divergence (routing) has a small r, dense divergence (weights) no beginning that agrees. One token of
    rounding is allowed on both sides of the comparison.
    """
    split: Diverging | None = diverging(window)
    if split is None or not split.tokens.any():
        return None
    when: Course | None = course(window)
    since = when.onset if when is not None and when.onset is not None else window.steps[0]
    owner, place = window.of, _place(window.of)
    n = window.batch.sequences
    hit = split.tokens & (window.at_step >= since)
    first = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(first, owner[hit], place[hit])
    some = np.bincount(owner[hit], minlength=n) > 0
    before = some[owner] & (place < first[owner])
    later = some[owner] & (place > first[owner])
    count = int(some.sum())
    if count < 3 or not before.any() or not later.any():
        return None
    rate = float(hit[later].mean())
    own = (np.bincount(owner[later], hit[later], n) + rate) / (np.bincount(owner[later], minlength=n) + 1.0)
    expected = float(((1.0 - own[some]) / np.maximum(own[some], 1e-3)).mean())
    beginnings = first[some].astype(np.float64)
    mean = float(beginnings.mean())
    error = max(float(beginnings.std(ddof=1)), expected, 1.0) / math.sqrt(count)
    explained = max(0.0, 1.0 - (expected + 1.0) / (mean + 1.0))
    explained *= split.energy * at_baseline(window, float(np.abs(window.d[before]).mean()))
    affected = some & (first > 0)
    return Finding(
        "context_mismatch",
        normal_tail((mean - expected) / error),
        explained * window.share(window.clean),
        f"in {int(affected.sum())} of {count} diverging sequences both sides agree up to some position (mean "
        f"{mean:.0f} tokens; independent divergence would leave {expected:.1f}) and {rate:.0%} of the tokens differ "
        "after it",
        {
            "sequences": int(affected.sum()),
            "diverging_sequences": count,
            "agreeing_tokens_before": mean,
            "expected_by_chance": expected,
            "diverging_share_after": rate,
        },
        CHECKS,
        len(window.d),
        window.hits_per_step(affected),
        claims_differences=True,
    )


def _place(of: NDArray[np.int64]) -> NDArray[np.int64]:
    """[N] number of the clean token within its sequence"""
    starts = np.flatnonzero(np.concatenate([[True], of[1:] != of[:-1]]))
    return np.arange(len(of)) - np.repeat(starts, np.diff(np.concatenate([starts, [len(of)]])))
