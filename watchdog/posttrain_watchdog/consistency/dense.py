"""What is left when no specific cause speaks: two true distributions that differ. Five causes share it out.

The engine reports what it samples from, the trainer what it computes, and d has no structure that a mask, an
alignment or a sampling parameter would give it. What remains to look at is time (History) and the tail:

    since some step, and growing with every update         stale_weights
    since some step, level, moderate                       policy_lag
    since some step, level, large                          weights_corrupted
    since the first step, small, without a direction       precision_noise
    since the first step, few tokens, very large           routing_mismatch

Each factor below is a measured share between 0 and 1; nothing is compared with a fitted threshold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from posttrain_watchdog.consistency.divergence import Diverging, diverging
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.history import Course, course, growing
from posttrain_watchdog.consistency.tempering import identity_figures
from posttrain_watchdog.consistency.window import Window

LARGE = 0.1
"""nats of k3: the guide's limit"""
NOISE = 1e-2
"""nats of k3 up to which two dense bf16 implementations have been seen to differ (Liu et al., in the public record)"""
RARE = 1e-3
"""share of tokens off by more than a factor of 2 that is ordinary (IcePop masks 1 to 2 per mille)"""


@dataclass(slots=True)
class Tail:
    """The tokens whose ratio is beyond a factor of two."""

    share: float
    explained: float
    p: float
    k3_bulk: float


@dataclass(slots=True)
class Dense:
    course: Course
    k3: float
    direction: float
    """|sum d| / sum |d|"""
    tail: Tail
    lag: float | None
    """weight versions between sampling and scoring, where both are known"""
    p: dict[str, float]
    explained: dict[str, float]


def dense(window: Window) -> Dense | None:
    return window.remember("dense", _dense)  # type: ignore[no-any-return]


def _dense(window: Window) -> Dense | None:
    when = course(window)
    if when is None or window.quiet or len(window.d) < 32:
        return None
    d = np.clip(window.d, -20.0, 20.0)
    k3 = float((np.expm1(d) - d).mean())
    direction = abs(float(d.sum())) / float(np.abs(d).sum())
    tail = _tail(window)
    lag = _lag(window)
    left = window.share(window.clean)
    grows = growing(when)
    large = k3 / (k3 + LARGE)
    p, explained = {}, {}
    if when.onset is not None:
        p["stale_weights"] = when.p
        explained["stale_weights"] = left * grows
        p["policy_lag"] = p["weights_corrupted"] = when.p
        explained["policy_lag"] = 0.0 if lag == 0.0 else left * (1.0 - grows) * (1.0 - large)
        explained["weights_corrupted"] = left * (1.0 - grows) * large
    elif not window.whole:
        # what has been so since the first step shows best in all of it: a short window may hold none of the tail
        pass
    elif lag:
        p["policy_lag"] = 0.0
        explained["policy_lag"] = left * (1.0 - large)
    else:
        p["routing_mismatch"] = tail.p
        explained["routing_mismatch"] = left * tail.explained
        p["precision_noise"] = 0.0
        explained["precision_noise"] = left * (1.0 - direction) * (1.0 - tail.explained) / (1.0 + k3 / NOISE)
    return Dense(when, k3, direction, tail, lag, p, explained)


def _lag(window: Window) -> float | None:
    engine, trainer = window.batch.weight_version, window.batch.trainer_version
    if engine is None or trainer is None:
        return None
    known = (engine >= 0) & (trainer >= 0)
    return float((trainer - engine)[known].mean()) if known.any() else None


def _tail(window: Window) -> Tail:
    """Tokens off by more than a factor of two against what the bulk's own noise, taken as Laplacian, would give."""
    size = np.minimum(np.abs(window.d), 20.0)
    scale = np.abs(window.t) + 0.02
    relative = float(np.median(size / scale)) / math.log(2.0)
    expected = float(np.exp(-math.log(2.0) / np.maximum(relative * scale, 1e-12)).sum())
    split: Diverging | None = diverging(window)
    tail = size > math.log(2.0)
    count = int(tail.sum())
    outside = split.tokens if split is not None else tail
    bulk = np.clip(window.d[~outside], -20.0, 20.0)
    k3_bulk = float((np.expm1(bulk) - bulk).mean()) if len(bulk) else math.inf
    if not count or split is None:
        return Tail(0.0, 0.0, 1.0, k3_bulk)
    share = count / len(size)
    above = int((window.d[tail] > 0).sum())
    lean = abs(2 * above - count) / count
    two_sided = 1.0 - max(0.0, lean - 1.96 / math.sqrt(count))
    owners = len(np.unique(window.of[tail]))
    lengths = np.bincount(window.of)
    spread_out = float((1.0 - (1.0 - share) ** lengths[lengths > 0]).sum())
    scattered = min(1.0, owners / max(spread_out, 1e-9))
    # healthy runs have a tail of RARE of their own
    mean = max(expected, RARE * len(size))
    p = math.exp(-max(0.0, count * math.log(count / mean) - count + mean)) if count > mean else 1.0
    return Tail(share, split.energy * two_sided * scattered / (1.0 + k3_bulk / NOISE), p, k3_bulk)


_SAYS = {
    "stale_weights": "trainer and engine drift apart since step {onset}: rms of d from {before:.4f} to {now:.3f}, "
    "growing as (steps since)^{exponent:.2f}; both are true distributions (mean ratio {ratio_mean:.3f} +- "
    "{ratio_stderr:.3f})",
    "policy_lag": "trainer and engine differ since step {onset} by rms {now:.3f} (before: {before:.4f}) without "
    "growing (exponent {exponent:.2f}): a bounded number of updates between rollout and training",
    "weights_corrupted": "trainer and engine are far apart since step {onset}: rms of d from {before:.4f} to "
    "{now:.3f} and level since, k3 {k3:.3f}",
    "precision_noise": "differences without a direction since the first step: k3 {k3:.1e}, rms {now:.4f}",
    "routing_mismatch": "{tail_share:.2%} of tokens are off by more than a factor of 2, on both sides, with k3 "
    "{k3:.1e}, while the others differ by noise (k3 {k3_bulk:.1e}); the mean ratio {ratio_mean:.3f} tells nothing",
}


def dense_finding(window: Window, cause: str, checks: tuple[str, str, str]) -> Finding | None:
    """The share of one of the five causes as a finding."""
    shares = dense(window)
    if shares is None or shares.explained.get(cause, 0.0) <= 0.0:
        return None
    when = shares.course
    figures: dict[str, float] = {
        "k3": shares.k3,
        "rms_before": when.before,
        "rms_now": when.now,
        "growth_exponent": when.exponent,
        "growth_exponent_stderr": when.exponent_error,
        "direction": shares.direction,
        "share_off_by_more_than_2": shares.tail.share,
        "k3_bulk": shares.tail.k3_bulk,
        **identity_figures(window),
    }
    if shares.lag is not None:
        figures["weight_version_lag"] = shares.lag
    says = _SAYS[cause].format(
        onset=when.onset,
        before=when.before,
        now=when.now,
        exponent=when.exponent,
        k3=shares.k3,
        k3_bulk=shares.tail.k3_bulk,
        tail_share=shares.tail.share,
        ratio_mean=figures["ratio_mean"],
        ratio_stderr=figures["ratio_stderr"],
    )
    scores = when.per_step
    if when.onset is not None:
        # the course knows the onset better than the sum of scores: a growing fault starts below the middle
        scores = {k: (1.0 if k >= when.onset else -1.0) for k in scores}
    return Finding(
        cause,
        shares.p[cause],
        shares.explained[cause],
        says,
        {k: v for k, v in figures.items() if math.isfinite(v)},
        checks,
        len(window.d),
        scores,
        tier=2,
    )
