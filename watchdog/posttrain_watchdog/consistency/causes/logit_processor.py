"""Penalties, bias, bad words or grammar in the engine that the trainer does not apply."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.alignment import positive_mean
from posttrain_watchdog.consistency.chance import association
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.tempering import identity_figures
from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHECKS = (
    "repetition_penalty, presence_penalty, frequency_penalty in the rollout's sampling parameters",
    "defaults that a model brings along (generation_config.json) and per-request overrides",
    "logit_bias, bad_words, allowed tokens, structured output: the trainer must apply the same or the engine none",
)


def judge(window: Window) -> Finding | None:
    """The sign of d follows whether the token occurred before.

    A penalty lowers the engine's logit of every token that is already there and so raises all others: d > 0 for
    repeated tokens, d < 0 for new ones, in every context. A reward of repetition (a repetition_penalty below 1, a
    negative presence_penalty) does the opposite. Nothing else knows what a repetition is.
    """
    seen = seen_before(window)
    if seen is None or window.quiet:
        return None
    off = window.off
    if off.sum() < 32:
        return None
    above = window.d[off] > 0
    repeated = seen[window.clean][off]
    phi = association(above, repeated)
    if phi == 0.0:
        return None
    sign = math.copysign(1.0, phi)
    score = sign * (repeated - repeated.mean()) * np.sign(window.d[off])
    # either sign is looked for
    p = min(1.0, 2.0 * positive_mean(np.bincount(window.of[off], score)))
    return Finding(
        "logit_processor",
        p,
        phi * phi * window.share(window.clean),
        f"{above[repeated].mean():.0%} of repeated tokens are likelier to the trainer than to the engine, of new "
        f"tokens {above[~repeated].mean():.0%}: the engine {'penalises' if phi > 0.0 else 'favours'} repetition",
        {
            "repeated_above": float(above[repeated].mean()),
            "new_above": float(above[~repeated].mean()),
            "association": phi,
            **identity_figures(window),
        },
        CHECKS,
        len(window.d),
        window.per_step(np.where(above == repeated, sign, -sign) * off.mean(), window.at_step[off])
        | {k: -0.1 for k in window.steps if not (window.at_step[off] == k).any()},
        claims_differences=True,
    )


def seen_before(window: Window) -> NDArray[np.bool_] | None:
    """[T] the id occurred earlier in the completion, or in the prompt where it is known. None without ids."""
    ids = window.batch.token_ids
    if ids is None:
        return None
    code = window.sequence * np.int64(1 << 32) + ids
    _, first = np.unique(code, return_index=True)
    seen = np.ones(window.batch.tokens, np.bool_)
    seen[first] = False
    prompts = window.batch.prompt_ids
    if prompts is not None and any(len(p) for p in prompts):
        owner = np.repeat(np.arange(len(prompts)), [len(p) for p in prompts])
        seen |= np.isin(code, owner * np.int64(1 << 32) + np.concatenate(list(prompts)))
    return seen
