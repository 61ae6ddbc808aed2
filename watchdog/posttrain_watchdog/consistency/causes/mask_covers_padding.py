"""Positions after the end of the sequence count."""

from __future__ import annotations

from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.masking import mask_finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "look where completion_mask is built: positions after the first end token must be 0",
    "is the pad id the end id, and does the mask compare against only one of several end ids",
    "sum of the mask against the number of tokens the engine returned",
)


def judge(window: Window) -> Finding | None:
    """Unsampled tokens masked in behind the end token: the engine's value there is exactly 0 or null."""
    return mask_finding(window, "mask_covers_padding", "padding", "padding behind the end token counts", CHECKS)
