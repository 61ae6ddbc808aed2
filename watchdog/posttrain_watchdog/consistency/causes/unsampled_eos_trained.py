"""An end token that the engine never sampled was appended and is trained on."""

from __future__ import annotations

from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.masking import mask_finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "does the trainer append the end token to completions that hit the length limit or a stop string",
    "finish_reason of these sequences: length and stop strings sample no end token",
    "take the appended token out of completion_mask",
)


def judge(window: Window) -> Finding | None:
    """One token at the end, the same id everywhere, counts in the loss and has no engine logprob."""
    return mask_finding(
        window, "unsampled_eos_trained", "appended", "an appended end token without an engine logprob counts", CHECKS
    )
