"""One sequence holds tokens of several weight versions though partial rollouts are off."""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.consistency.finding import Finding, counted
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "are partial rollouts on: then this is by design and the trainer must weigh each token by its own version",
    "does the weight update wait for running requests, or abort them",
    "are requests resumed after an update continued with the old attention cache",
)


def judge(window: Window) -> Finding | None:
    """Counts sequences whose tokens name more than one version."""
    versions = window.batch.token_versions
    if versions is None:
        return None
    known = versions >= 0
    low = np.full(window.batch.sequences, np.iinfo(np.int64).max)
    high = np.full(window.batch.sequences, -1)
    np.minimum.at(low, window.sequence[known], versions[known])
    np.maximum.at(high, window.sequence[known], versions[known])
    hit = (high >= 0) & (high > low)
    count = int(hit.sum())
    if not count:
        return None
    spread = int((high - low)[hit].max())
    return Finding(
        "mixed_weight_versions",
        0.0,
        counted(count, count),
        f"{count} of {window.batch.sequences} sequences hold tokens of several weight versions, up to {spread} apart",
        {"sequences": count, "share_of_sequences": count / window.batch.sequences, "largest_spread": spread},
        CHECKS,
        window.batch.tokens,
        window.hits_per_step(hit),
    )
