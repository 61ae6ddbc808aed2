"""Completions carry logprobs; prompts were asked for and have none."""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.consistency.finding import Finding, counted
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "is prompt_logprobs in the engine's responses: the request must ask for it (prompt_logprobs, echo with logprobs)",
    "engine version and prefix caching: cached prompt tokens may come back without logprobs",
    "does the client drop the field prompt_logprobs of the response",
)


def judge(window: Window) -> Finding | None:
    """A source that knows says so in extra["prompt_logprobs_missing"] [S]: 1 asked for and absent, 0 present."""
    flags = window.batch.extra.get("prompt_logprobs_missing")
    if flags is None or len(flags) != window.batch.sequences:
        return None
    hit = np.asarray(flags, np.float64) == 1.0
    count = int(hit.sum())
    if not count:
        return None
    asked = int(np.isfinite(np.asarray(flags, np.float64)).sum())
    return Finding(
        "prompt_logprobs_missing",
        0.0,
        counted(count, asked),
        f"{count} of {asked} responses that asked for prompt logprobs have none",
        {"responses": count, "of_responses": asked},
        CHECKS,
        int(window.batch.tokens),
        window.hits_per_step(hit),
    )
