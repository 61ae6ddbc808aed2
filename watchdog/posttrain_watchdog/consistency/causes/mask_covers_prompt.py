"""Prompt positions count."""

from __future__ import annotations

from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.masking import mask_finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "look where completion_mask is built: everything before the first sampled token must be 0",
    "prompt length in the trainer against the engine's prompt_tokens",
    "special tokens added twice (begin-of-sequence, generation prompt)",
)


def judge(window: Window) -> Finding | None:
    """Unsampled tokens masked in before the first sampled one."""
    return mask_finding(window, "mask_covers_prompt", "prompt", "tokens before the first sampled one count", CHECKS)
