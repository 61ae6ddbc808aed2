"""The engine samples from older weights than it should."""

from __future__ import annotations

from posttrain_watchdog.consistency.dense import dense_finding
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "did the last weight update reach the engine: its log, its weight version, a checksum of one tensor",
    "score a fixed prompt on the engine before and after an update: the logprobs must change",
    "sleep level, reload path and target of the update (every replica, every tensor)",
)


def judge(window: Window) -> Finding | None:
    """Both sides are true distributions, apart since some step, and further apart with every update since."""
    return dense_finding(window, "stale_weights", CHECKS)
