"""NaN or infinite logprobs."""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.consistency.finding import Finding, counted
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "is the whole row of logits NaN at these tokens (weights, kernel) or this one value (masked token, underflow)",
    "first bad step against the last weight update, and the engine's log of that moment",
    "kernels, tensor parallelism and number format of the side that reports them",
)


def judge(window: Window) -> Finding | None:
    """A sampled token has a finite logprob on both sides, always: one that has not is exact evidence.

    Tokens outside the mask count too: a trainer that masks what is NaN shows perfect metrics (loss 0, ratio 1).
    -9999.0 is -inf as vLLM's HTTP server clamps it.
    """
    bad = window.non_finite
    count = int(bad.sum())
    if not count:
        return None
    hit = window.owners(bad)
    nan = int((np.isnan(window.engine) & bad).sum())
    trainer = int((~np.isfinite(window.trainer) & bad).sum())
    masked = int((bad & window.batch.mask).sum())
    return Finding(
        "non_finite",
        0.0,
        counted(count, count),
        f"{count} tokens of {int(hit.sum())} sequences have a logprob that is NaN or infinite "
        f"({nan} NaN and {count - nan - trainer} infinite from the engine, {trainer} from the trainer; "
        f"{masked} under the mask)",
        {
            "tokens": count,
            "sequences": int(hit.sum()),
            "engine_nan": nan,
            "trainer_non_finite": trainer,
            "under_mask": masked,
        },
        CHECKS,
        int(window.batch.mask.sum()),
        window.hits_per_step(hit),
    )
