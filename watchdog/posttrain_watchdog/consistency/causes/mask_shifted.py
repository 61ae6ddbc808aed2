"""The completion mask moved by one or more positions."""

from __future__ import annotations

from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.masking import mask_finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "print mask and token ids of one sequence side by side: the first sampled token must count, padding must not",
    "look where completion_mask is built: is it shifted together with the labels, once, on both sides",
    "logits_to_keep and the slice of the prompt in the trainer's logprob function",
)


def judge(window: Window) -> Finding | None:
    """Sampled tokens masked out at the front and as many unsampled ones masked in behind the end."""
    return mask_finding(window, "mask_shifted", "shifted", "the mask starts late and ends beyond the end token", CHECKS)
