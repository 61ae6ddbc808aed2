"""The engine's weights are wrong since an update (layout, quantisation, partial copy), not merely old."""

from __future__ import annotations

from posttrain_watchdog.consistency.dense import dense_finding
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "update the engine with the weights it already has: nothing may change",
    "checksum or relative error of every tensor, engine against trainer, right after an update",
    "tensors that were skipped, fused, transposed or quantised on the way (warnings of the loader)",
)


def judge(window: Window) -> Finding | None:
    """Both sides are true distributions, far apart from one step to the next, and level since."""
    return dense_finding(window, "weights_corrupted", CHECKS)
