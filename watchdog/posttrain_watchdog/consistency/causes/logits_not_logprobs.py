"""The engine's values are logits: positive values, no normalisation."""

from __future__ import annotations

from posttrain_watchdog.consistency.finding import Finding, counted
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "logprobs mode of every engine: processed_logprobs, neither raw_logits nor processed_logits",
    "does a custom sampler or client pass logits through under the name of logprobs",
    "request of one token: exp of its top logprobs must sum to at most 1",
)


def judge(window: Window) -> Finding | None:
    """log p <= 0 for every p <= 1: a value above 0 by more than rounding is no logprob."""
    positive = window.positive
    count = int(positive.sum())
    if not count:
        return None
    scored = int(window.scored.sum())
    share = count / scored
    mean = float(window.engine[positive].mean())
    return Finding(
        "logits_not_logprobs",
        0.0,
        counted(count, count),
        f"{share:.1%} of {scored} engine logprobs are above 0 (mean {mean:.2f} nats there): these are logits",
        {"positive_share": share, "tokens": count, "mean_positive": mean},
        CHECKS,
        scored,
        window.hits_per_step(window.owners(positive)),
    )
