"""Two forward passes of the trainer over the same tokens differ (dropout, train mode, kernels)."""

from __future__ import annotations

import math

import numpy as np

from posttrain_watchdog.consistency.chance import clustered_mean, normal_tail
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "model.eval() (or dropout 0) in the pass that computes old logprobs, and attention and LoRA dropout off",
    "score one batch twice: the two passes must agree to the kernel's noise",
    "chunk size, packing and padding of the two passes",
)
ORDINARY = 0.1
"""sd of two bf16 passes with different chunking: ordinary up to here (TRL issue 6789)"""


def judge(window: Window) -> Finding | None:
    """The trainer's second scores of the same tokens, where the dump has them, against its first.

    Chunking alone gives two bf16 passes a standard deviation of up to 0.1; what lies above is the finding, tested
    on the mean square with sequences as clusters.
    """
    again = window.batch.extra.get("trainer_rescored")
    if again is None or len(again) != window.batch.tokens:
        return None
    gap = (window.trainer - np.asarray(again, np.float64))[window.scored]
    good = np.isfinite(gap)
    if good.sum() < 32:
        return None
    square = np.minimum(gap[good] ** 2, 25.0)
    mean, error = clustered_mean(square, window.sequence[window.scored][good])
    if not math.isfinite(error) or mean <= ORDINARY**2:
        return None
    spread = math.sqrt(mean)
    return Finding(
        "trainer_not_reproducible",
        normal_tail((mean - ORDINARY**2) / max(error, 1e-12)),
        1.0 - ORDINARY**2 / mean,
        f"two passes of the trainer over the same {int(good.sum())} tokens differ by {spread:.2f} nats "
        f"(standard deviation; kernels alone give up to {ORDINARY})",
        {"rescoring_sd": spread, "tokens": int(good.sum())},
        CHECKS,
        int(good.sum()),
        dict.fromkeys(window.steps, 1.0),
    )
