"""Tokens that the engine did not sample (tool output, environment turns) count."""

from __future__ import annotations

from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.masking import mask_finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "is the tool mask multiplied into completion_mask: tokens that came from a tool or the environment must be 0",
    "sum of the mask against the engine's completion_tokens, turn by turn",
    "is training on observations wanted: then exclude these positions from the importance ratio",
)


def judge(window: Window) -> Finding | None:
    """Runs of exactly 0 (or null) under the mask between sampled tokens, which the trainer finds unlikely."""
    return mask_finding(
        window, "mask_covers_tool_tokens", "tools", "runs of tokens that the engine never sampled count", CHECKS
    )
