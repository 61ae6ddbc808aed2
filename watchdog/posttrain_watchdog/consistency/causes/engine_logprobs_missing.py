"""No engine logprobs: none, null, empty or all zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.finding import Finding, counted
from posttrain_watchdog.consistency.tokenisation import uneven_lengths
from posttrain_watchdog.consistency.window import UNLIKELY, Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHECKS = (
    "is logprobs requested from the engine (SamplingParams.logprobs, return_logprob) for every rollout",
    "does the client copy the engine's logprobs into the sample, or a placeholder (0.0, null)",
    "engine log: errors or fallbacks of the requests that came back without",
)


def judge(window: Window) -> Finding | None:
    """Whole sequences of nulls or exact zeros, or nulls scattered over more than one scored token in a thousand.

    Zeros count only where the trainer finds some of the tokens less likely than truncated sampling could leave.
    A null tail of a sequence whose two sides differ in length is the length's fault, runs in the middle the mask's.
    """
    batch = window.batch
    n = batch.sequences
    count = np.maximum(window.lengths, 1)
    null = np.bincount(window.sequence[window.null], minlength=n)
    zero = np.bincount(window.sequence[(window.engine == 0.0)], minlength=n)
    lowest = np.zeros(n)
    finite = np.isfinite(window.trainer)
    np.minimum.at(lowest, window.sequence[finite], window.trainer[finite])
    whole = (window.lengths > 0) & ((null == count) | ((zero + null == count) & (lowest < UNLIKELY)))
    lone = window.null & batch.mask & ~_in_runs(window)
    scattered = np.zeros(n, np.bool_)
    if int(lone.sum()) > 1e-3 * max(1, int(batch.mask.sum())):
        scattered = window.owners(lone) & ~uneven_lengths(window)
    hit = whole | scattered
    if not hit.any():
        return None
    sequences = int(hit.sum())
    tokens = int((null + zero)[whole].sum() + lone[hit[window.sequence] & ~whole[window.sequence]].sum())
    return Finding(
        "engine_logprobs_missing",
        0.0,
        counted(sequences, sequences),
        f"{tokens} tokens of {sequences} sequences (of {n}) carry no engine logprob: null, or exactly 0 throughout",
        {"sequences": sequences, "of_sequences": n, "tokens": tokens, "whole_sequences": int(whole.sum())},
        CHECKS,
        int(batch.mask.sum()),
        window.hits_per_step(hit),
    )


def _in_runs(window: Window) -> NDArray[np.bool_]:
    """[T] nulls in a run of three or more between scored tokens: a turn that the engine did not sample."""
    inside = np.zeros(window.batch.tokens, np.bool_)
    for start, end in zip(*window.unscored_runs, strict=True):
        if end - start >= 3:
            inside[start:end] = True
    return inside
