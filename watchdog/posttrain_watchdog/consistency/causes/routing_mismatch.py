"""Mixture-of-experts routing differs: few tokens, very large differences."""

from __future__ import annotations

from posttrain_watchdog.consistency.dense import dense_finding
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "routing replay on against off, over the same batch",
    "number format of the router on both sides (float32), and ties in its top-k",
    "expert and tensor parallelism equal on both sides; capacity and token dropping",
)


def judge(window: Window) -> Finding | None:
    """A sparse tail on both sides, scattered over tokens and sequences, above a bulk that is ordinary noise."""
    return dense_finding(window, "routing_mismatch", CHECKS)
