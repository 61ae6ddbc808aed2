"""From which step a fault is in the data: the change point that the per-step scores make most likely."""

from __future__ import annotations

from collections.abc import Mapping


def onset(scores: Mapping[int, float]) -> int | None:
    """The step k with the largest sum of scores over steps >= k; the earliest of equals. None without a score > 0.

    Scores are log-likelihood ratios of "faulty from here on" against "as before", so this is the maximum-likelihood
    change point (Hinkley 1970).
    """
    best, at, total = 0.0, None, 0.0
    for step in sorted(scores, reverse=True):
        total += scores[step]
        if total >= best and total > 0.0:
            best, at = total, step
    return at
