"""The end token never counts although it was sampled."""

from __future__ import annotations

from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.masking import mask_finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "look where completion_mask is built: the end token itself must count, only what follows it must not",
    "is the end token the pad token, so that masking padding masks it too",
    "are stop strings cut off the completion on purpose",
)


def judge(window: Window) -> Finding | None:
    """The last sampled token is the end token and the only one that is masked out."""
    return mask_finding(window, "mask_drops_eos", "end_dropped", "the sampled end token is masked out", CHECKS)
