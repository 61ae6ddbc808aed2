"""The two sides hold different token ids: the text was decoded and encoded again on the way."""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.consistency.finding import Finding, counted
from posttrain_watchdog.consistency.tokenisation import different_tokens, uneven_lengths
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "do the engine's token ids reach the trainer (token in, token out), or is text tokenised again",
    "special tokens stripped in decoding, and the chat template applied to what was sampled",
    "same tokenizer files and version on both sides",
)


def judge(window: Window) -> Finding | None:
    """Two different ids at one position are exact evidence; where it starts tells the turn or token that does it."""
    tokens = different_tokens(window)
    if tokens is None or not tokens.any():
        return None
    hit = window.owners(tokens)
    count = int(hit.sum())
    first = np.full(window.batch.sequences, np.iinfo(np.int64).max)
    np.minimum.at(first, window.sequence[tokens], window.position[tokens])
    uneven = int((uneven_lengths(window) & hit).sum())
    start = int(np.median(first[hit]))
    return Finding(
        "retokenised",
        0.0,
        counted(count, count),
        f"{count} of {window.batch.sequences} sequences hold different token ids on the two sides, "
        f"from position {start} on (median); in {uneven} of them the lengths differ too",
        {
            "sequences": count,
            "share_of_sequences": count / window.batch.sequences,
            "first_differing_position": start,
            "lengths_differ": uneven,
        },
        CHECKS,
        window.batch.tokens,
        window.hits_per_step(hit),
    )
