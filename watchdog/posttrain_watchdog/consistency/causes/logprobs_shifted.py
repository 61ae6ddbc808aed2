"""Engine logprobs belong to the neighbouring token, or the last one of each sequence to another label."""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.consistency.alignment import Shift, best_shift
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
    if shift is None or shift.explained <= 0.0:
        return None
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
    )
