"""Symmetric, small, worst at improbable tokens: number formats or kernels."""

from __future__ import annotations

from posttrain_watchdog.consistency.dense import dense_finding
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "number format of both sides (weights, head, router, attention cache) and of log_softmax",
    "the trainer's own noise: score one batch twice with another chunk size",
    "attention back end, tensor parallelism and GPU type of the two sides",
)


def judge(window: Window) -> Finding | None:
    """Differences without a direction, of the same small size since the first step."""
    return dense_finding(window, "precision_noise", CHECKS)
