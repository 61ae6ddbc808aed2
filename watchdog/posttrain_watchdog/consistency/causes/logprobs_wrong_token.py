"""The engine logprob is that of another candidate of the same position (first entry of a top-k dictionary)."""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.consistency.finding import Finding, counted
from posttrain_watchdog.consistency.truncation import one_sided
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "look up the sampled id in the dictionary that the engine returns, never its first entry",
    "ask for logprobs=0: then only the sampled token's value comes back",
    "entries keyed by text collide: key by token id",
)


def judge(window: Window) -> Finding | None:
    """With the engine's candidates: the recorded value is the best candidate's, and the sampled id is another one.

    Without: the best candidate is never less likely than the sampled one, so d <= 0 throughout; a token with more
    than half of the mass is the best candidate itself, so d is at the floor there; and a token is at the floor with
    probability exp(s), for that is how often the best candidate is the sampled one. Truncated sampling, the other
    cause of one-sided differences, moves tokens with more than half of the mass as well.
    """
    if window.quiet:
        return None
    exact = _against_candidates(window)
    if exact is not None:
        return exact
    one = one_sided(window)
    if one is None:
        return None
    return Finding(
        "logprobs_wrong_token",
        one.p,
        one.explained * one.peaked_at_floor * one.best_candidate,
        f"d is never above 0 ({one.negative} of {one.negative + one.positive} tokens below), exactly 0 for "
        f"{one.peaked_at_floor:.0%} of the tokens with more than half of the mass: the engine's value may be that of "
        "its best candidate",
        {
            "negative": one.negative,
            "positive": one.positive,
            "peaked_at_floor": one.peaked_at_floor,
            "agrees_as_best_candidate": one.best_candidate,
        },
        CHECKS,
        len(window.d),
        one.per_step,
        claims_differences=True,
    )


def _against_candidates(window: Window) -> Finding | None:
    ids, values, ours = window.batch.engine_top_ids, window.batch.engine_top_logprobs, window.batch.token_ids
    if ids is None or values is None or ours is None:
        return None
    clean = window.clean
    known = clean & (ids[:, 0] >= 0) & (ours >= 0)
    other = known & (ids[:, 0] != ours)
    near = 10.0 * window.tolerance
    recorded_best = np.abs(window.engine - values[:, 0].astype(np.float64)) <= near
    wrong = other & recorded_best & (np.abs(window.d_all) > near)
    count = int(wrong.sum())
    if not count:
        return None
    share = window.share(wrong)
    return Finding(
        "logprobs_wrong_token",
        0.0,
        share * counted(count, count),
        f"at {count} of {int(other.sum())} positions where the sampled token is not the engine's best candidate, the "
        f"recorded logprob is the best candidate's: {share:.0%} of all difference",
        {
            "positions": count,
            "sampled_is_not_best": int(other.sum()),
            "share_of_difference": share,
            "agrees_where_sampled_is_best": float((np.abs(window.d_all) < 0.1)[known & ~other].mean())
            if (known & ~other).any()
            else 1.0,
        },
        CHECKS,
        len(window.d),
        window.hits_per_step(window.owners(wrong)),
        claims_differences=True,
    )
