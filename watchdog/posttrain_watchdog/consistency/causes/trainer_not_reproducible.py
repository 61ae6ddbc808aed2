"""Two forward passes of the trainer over the same tokens differ (dropout, train mode, kernels)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.chance import clustered_mean, normal_tail
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CHECKS = (
    "model.eval() (or dropout 0) in the pass that computes old logprobs, and attention and LoRA dropout off",
    "score one batch twice: the two passes must agree to the kernel's noise",
    "chunk size, packing and padding of the two passes",
)
ORDINARY = 0.1
"""sd of two bf16 passes with different chunking: ordinary up to here (TRL issue 6789)"""
STEPS = 4
"""steps that must show it in the loss, so that reading begun in the middle of a rollout has seen the next begin"""


def judge(window: Window) -> Finding | None:
    """The trainer's second scores of the same tokens against its first.

    Chunking alone gives two bf16 passes a standard deviation of up to 0.1; what lies above is the finding, tested
    on the mean square with sequences as clusters.
    """
    again = window.batch.extra.get("trainer_rescored")
    if again is not None and len(again) == window.batch.tokens:
        return _rescored(window, np.asarray(again, np.float64))
    if window.batch.current_logprobs is not None and window.whole:
        return _in_the_loss(window, window.batch.current_logprobs.astype(np.float64))
    return None


def _rescored(window: Window, again: Floats) -> Finding | None:
    found = _excess(window, again, window.scored)
    if found is None or found[1] <= ORDINARY**2:
        return None
    count, mean, p = found
    spread = math.sqrt(mean)
    return Finding(
        "trainer_not_reproducible",
        p,
        1.0 - ORDINARY**2 / mean,
        f"two passes of the trainer over the same {count} tokens differ by {spread:.2f} nats "
        f"(standard deviation; kernels alone give up to {ORDINARY})",
        {"rescoring_sd": spread, "tokens": count},
        CHECKS,
        count,
        dict.fromkeys(window.steps, 1.0),
    )


def _in_the_loss(window: Window, current: Floats) -> Finding | None:
    """The scores in the loss against those before the update, over all steps that are kept.

    Updates of the weights between the two make a difference as well, but not in the first step of a rollout: so the
    quietest step speaks, and every step has to stand the test.
    """
    each = [_excess(window, current, window.scored & (window.token_step == step)) for step in window.steps]
    passes = [e for e in each if e is not None]
    if len(passes) < STEPS:
        return None
    quietest = min(mean for _, mean, _ in passes)
    if quietest <= ORDINARY**2:
        return None
    count = sum(n for n, _, _ in passes)
    spread = math.sqrt(quietest)
    return Finding(
        "trainer_not_reproducible",
        max(p for _, _, p in passes),
        1.0 - ORDINARY**2 / quietest,
        f"the trainer's logprobs in the loss and before it differ in every step, by {spread:.2f} nats in the quietest "
        f"of {len(passes)} (standard deviation; kernels alone give up to {ORDINARY})",
        {"rescoring_sd": spread, "tokens": count, "steps": len(passes)},
        CHECKS,
        count,
        dict.fromkeys(window.steps, 1.0),
    )


def _excess(window: Window, again: Floats, chosen: NDArray[np.bool_]) -> tuple[int, float, float] | None:
    """(tokens, mean square of the difference, p that kernels alone make it so); None with too few to tell."""
    gap = (window.trainer - again)[chosen]
    good = np.isfinite(gap)
    if good.sum() < 32:
        return None
    mean, error = clustered_mean(np.minimum(gap[good] ** 2, 25.0), window.sequence[chosen][good])
    if not math.isfinite(error):
        return None
    return int(good.sum()), mean, normal_tail((mean - ORDINARY**2) / max(error, 1e-12))
