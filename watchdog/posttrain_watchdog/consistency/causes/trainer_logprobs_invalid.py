"""Trainer logprobs above 0, or on a coarse grid (a bf16 head)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.finding import Finding, counted
from posttrain_watchdog.consistency.window import POSITIVE, Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHECKS = (
    "cast logits to float32 before log_softmax (fp32 head) in the trainer",
    "is log_softmax fused with a kernel that returns bf16",
    "gather and subtraction of logsumexp in different formats",
)


def judge(window: Window) -> Finding | None:
    """log p <= 0; and 8 bits of mantissa leave 1/32 steps between 4 and 8 nats, which free values hit by chance.

    The grid is tested where it is coarse, above 1 nat: a value written with six digits lies within half a unit of
    its last digit of a bf16 number with probability of about 1 in 300.
    """
    t = window.trainer[window.scored]
    if not len(t):
        return None
    above = int((t > POSITIVE).sum())
    wide = np.abs(t) >= 1.0
    near = _on_bf16_grid(t[wide])
    on_grid, total = int(near.sum()), int(wide.sum())
    share = on_grid / total if total else 0.0
    if not above and (on_grid < 8 or share < 0.5):
        return None
    p = 0.0 if above else math.exp(-min(700.0, on_grid * math.log(100.0) - total * math.log(2.0)))
    places = np.flatnonzero(window.scored)
    hit = np.zeros(window.batch.tokens, np.bool_)
    hit[places[t > POSITIVE]] = True
    hit[places[wide][near]] |= share >= 0.5
    return Finding(
        "trainer_logprobs_invalid",
        min(1.0, p),
        counted(above, above) if above else share,
        f"{above} of {len(t)} trainer logprobs are above 0; of {total} below -1, {share:.0%} lie on the grid of bf16",
        {"above_zero": above, "on_bf16_grid": share, "largest": float(t.max())},
        CHECKS,
        len(t),
        window.hits_per_step(window.owners(hit)),
    )


def _on_bf16_grid(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(values), 1e-30))) - 7.0)
    gap = np.abs(values / step - np.round(values / step)) * step
    near: NDArray[np.bool_] = gap <= 5.1e-6 * np.maximum(1.0, np.abs(values))
    return near
