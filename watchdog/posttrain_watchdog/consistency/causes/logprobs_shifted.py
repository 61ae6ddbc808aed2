"""Engine logprobs belong to the neighbouring token, or the last one of each sequence to another label."""

from __future__ import annotations

import math

import numpy as np

from posttrain_watchdog.consistency.alignment import Shift, best_shift
from posttrain_watchdog.consistency.divergence import Diverging, diverging
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "slices of prompt and response on both sides: the logits of position i predict token i + 1, shift once",
    "is a begin-of-sequence token added on one side only, or prompt_logprobs one shorter than the prompt",
    "packed batches: shift the labels before packing, not after",
)


def judge(window: Window) -> Finding | None:
    """The engine's value of the neighbour fits the trainer's and the own one does not.

    Repetitive text makes neighbours alike, which only makes the gain smaller, never positive.
    """
    shift: Shift | None = window.remember("shift", best_shift)
    border = _at_borders(window)
    if shift is None or shift.explained <= 0.0 or (border is not None and border.explained > shift.explained):
        return border
    mean = float(np.abs(window.d).mean()) if len(window.d) else 0.0
    return Finding(
        "logprobs_shifted",
        shift.p,
        shift.explained,
        f"the engine's logprobs fit the trainer's when moved by {shift.lag:+d} token: that takes away "
        f"{shift.explained:.0%} of the difference (mean |d| {mean:.3f})",
        {"lag": shift.lag, "difference_taken_away": shift.explained, "abs_mean": mean},
        CHECKS,
        len(window.d),
        shift.per_step,
        claims_differences=True,
    )


def _at_borders(window: Window) -> Finding | None:
    """Only the last token of a sequence is off: its label was taken across the border of a packed batch.

    Against chance: of as many diverging tokens spread over all positions, so many at the last one (Chernoff's bound
    on a binomial count).
    """
    split: Diverging | None = diverging(window)
    if split is None or not split.tokens.any():
        return None
    last = np.concatenate([window.of[1:] != window.of[:-1], [True]])
    hit = last & split.tokens
    count, total = int(hit.sum()), int(split.tokens.sum())
    usual = float(last.mean())
    share = count / total
    if share <= usual or not count:
        return None
    gap = share * math.log(share / usual) + (1.0 - share) * math.log(max(1e-12, 1.0 - share) / (1.0 - usual))
    weight = np.minimum(np.abs(window.d), 20.0)
    part = float(weight[hit].sum()) / float(window.weight.sum())
    owners = np.zeros(window.batch.sequences, np.bool_)
    owners[window.of[hit]] = True
    return Finding(
        "logprobs_shifted",
        math.exp(-min(700.0, total * gap)),
        max(0.0, (part - usual) / (1.0 - usual)),
        f"{part:.0%} of the difference is at the last token of {count} sequences: their last label belongs to the next "
        "sequence of a packed batch",
        {"sequences": count, "share_of_difference": part, "share_of_tokens": usual},
        CHECKS,
        len(window.d),
        window.hits_per_step(owners),
        claims_differences=True,
    )
