"""Is one side the other at another temperature, and which of the two did the sampling.

If log p = tau * log q - log Z (engine p, trainer q, tau = T_trainer / T_engine), then to first order in 1 - tau
d = log q - log p = (1 - tau) * (log q + H(q)), H the entropy of q: one slope for all tokens, steps and contexts.
Without H: for a token with more than half of the mass, log-odds of p are tau times those of q plus a constant of the
context, so the change of log-odds is linear in the log-odds; and unlikely tokens move the other way.

Who sampled: sum d is the log-likelihood ratio of the sampled tokens under q against p. If p sampled, exp(sum d) is a
martingale with mean 1, so it passes 1/a with probability a at most, however often one looks (Ville 1939); if q
sampled, exp(-sum d) is one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.chance import clustered_mean, clustered_slope, two_sided
from posttrain_watchdog.consistency.history import Course, course, growing
from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(slots=True)
class Tempering:
    """The fit of one temperature ratio."""

    slope: float
    """1 - T_trainer / T_engine"""
    error: float
    p: float
    explained: float
    """share of sum(d^2) that one constant slope explains"""
    sampled_by_trainer: float
    """log-likelihood ratio of the tokens, trainer's distribution against the engine's, noise discounted"""
    p_sampled: float
    """that the other side sampled, however often one looks"""
    with_entropy: bool
    per_step: dict[int, float]


def tempering(window: Window) -> Tempering | None:
    return window.remember("tempering", _tempering)  # type: ignore[no-any-return]


def regressor(window: Window) -> tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]] | None:
    """(x, y, sequence, step) so that a temperature makes y = slope * x; None with too little to go by.

    With entropies x = t + H and y = d for every token; without, x is the log-odds of likely tokens and y what the
    engine adds to it.
    """
    x = window.centred
    if x is not None:
        good = np.isfinite(x)
        return x[good], window.d[good], window.of[good], window.at_step[good]
    half = math.log(0.5)
    likely = (window.t > half) & (window.s > half) & (window.t < -1e-4) & (window.s < -1e-4)
    if not likely.any():
        return None
    odds = _odds(window.t[likely])
    return odds, odds - _odds(window.s[likely]), window.of[likely], window.at_step[likely]


def _tempering(window: Window) -> Tempering | None:
    if window.quiet or len(window.d) < 32:
        return None
    found = regressor(window)
    if found is None:
        return None
    x, y, of, step = found
    if len(x) < 16:
        return None
    slope = _weighted_median(y, x)
    _, error, _ = clustered_slope(x, y, of)
    if slope == 0.0 or slope >= 1.0 or not math.isfinite(error):
        return None
    residual = y - slope * x
    size = float(np.abs(y).sum())
    explained = 1.0 - float(np.abs(residual - np.median(residual)).sum()) / size if size > 0 else 0.0
    with_entropy = window.centred is not None
    constant = _constancy(window, slope)
    if not with_entropy:
        # the competitors of likely tokens add (1 - tau) log K, on average an intercept
        tilt = clustered_slope(x - x.mean(), y - y.mean(), of)[0]
        free = y - tilt * x
        with_intercept = 1.0 - float(np.abs(free - np.median(free)).sum()) / size if size > 0 else 0.0
        if with_intercept > explained and tilt * slope > 0.0 and tilt < 1.0:
            explained, slope = with_intercept, tilt
        explained *= _unlikely_opposite(window, y)
    else:
        explained *= _both_ways(slope * x, y)
    explained *= constant
    if explained <= 0.0:
        return None
    total, p_sampled = _who_sampled(window, explained)
    return Tempering(
        slope,
        error,
        two_sided(slope / error) if error > 0 else 0.0,
        explained * window.share(window.clean),
        total,
        p_sampled,
        with_entropy,
        window.per_step(2.0 * slope * x * y - slope * slope * x * x, step),
    )


def _who_sampled(window: Window, explained: float) -> tuple[float, float]:
    """(log-likelihood ratio since the onset, p that the tokens were drawn from the side it speaks against).

    Noise in d is a Gaussian sum of its own and leaves the part `explained` of the ratio. By Ville the furthest that
    the ratio has ever been counts; an onset picked from n steps counts n times.
    """
    drift = window.history.drift or window.per_step(window.d, window.at_step)
    first = first_affected(window)
    walk = np.cumsum([drift[k] for k in sorted(drift) if k >= first]) * explained
    if not len(walk):
        return 0.0, 1.0
    total = float(walk[-1])
    furthest = float(walk.max()) if total > 0.0 else -float(walk.min())
    starts = 1 if first <= min(drift) else len(drift)
    return total, min(1.0, starts * math.exp(-min(700.0, max(0.0, furthest))))


def _weighted_median(y: Floats, x: Floats) -> float:
    """The slope through the origin with the least sum of |y - slope x|: one far-off token does not turn it."""
    used = x != 0.0
    ratio, weight = y[used] / x[used], np.abs(x[used])
    if not len(ratio):
        return 0.0
    order = np.argsort(ratio)
    reached = np.cumsum(weight[order])
    return float(ratio[order][int(np.searchsorted(reached, reached[-1] / 2.0))])


def _both_ways(predicted: Floats, y: Floats) -> float:
    """How far y goes each way where the temperature says so, the worse of the two ways: 0..1.

    A temperature takes from some tokens what it gives to others. A difference of one sign alone, or with a tail that
    turns the slope, fits half of that.
    """
    worse = 1.0
    for side in (predicted > 0.0, predicted < 0.0):
        weight = float(np.abs(y[side]).sum())
        agrees = float((y[side] * np.sign(predicted[side])).sum()) / weight if weight > 0.0 else 0.0
        worse = min(worse, max(0.0, agrees))
    return worse


def _unlikely_opposite(window: Window, y: Floats) -> float:
    """Without entropies: of the unlikeliest fifth of tokens, how far d goes the other way than at likely ones."""
    direction = float(np.sign(y.sum()))
    tail = window.d[window.t <= np.quantile(window.t, 0.2)]
    weight = float(np.abs(tail).sum())
    return max(0.0, -direction * float(tail.sum()) / weight) if weight > 0 else 0.0


def first_affected(window: Window) -> int:
    """The first step of the fault as far as the size of d tells: the onset of its course, or the first step."""
    when: Course | None = course(window)
    if when is not None and when.onset is not None:
        return when.onset
    return min(window.history.rms, default=window.steps[0])


def _constancy(window: Window, slope: float) -> float:
    """Smallest over largest slope of three equal parts of the time since the onset: a setting is constant.

    0 where the sign changes. Taken over the whole history, so that drifting weights do not look constant within a
    short window. Where there was another slope before the onset, what is growing since is no setting either.
    """
    xx, xd = window.history.fit_xx, window.history.fit_xd
    first = first_affected(window)
    steps = [k for k in sorted(xx) if k >= first and xx[k] > 0.0]
    slopes = [slope]
    for part in np.array_split(np.array(steps), 3) if len(steps) >= 3 else []:
        total = sum(xx[int(k)] for k in part)
        slopes.append(sum(xd[int(k)] for k in part) / total)
    low, high = min(slopes, key=abs), max(slopes, key=abs)
    constant = max(0.0, low / high) if high != 0.0 else 0.0
    earlier = [k for k in xx if k < first and xx[k] > 0.0]
    when: Course | None = course(window)
    if earlier and when is not None:
        before = sum(xd[k] for k in earlier) / sum(xx[k] for k in earlier)
        constant *= 1.0 - growing(when) * (1.0 - max(0.0, min(1.0, before / slope)))
    return constant


def _odds(logprob: Floats) -> Floats:
    """log(p / (1 - p))"""
    odds: Floats = logprob - np.log(-np.expm1(logprob))
    return odds


def identity_figures(window: Window) -> dict[str, float]:
    """Both means that are 1 for the distribution that sampled, with standard errors of sequences as clusters."""
    bounded = np.clip(window.d, -30.0, 30.0)
    ratio, ratio_error = clustered_mean(np.exp(bounded), window.of)
    reverse, reverse_error = clustered_mean(np.exp(-bounded), window.of)
    return {
        "ratio_mean": ratio,
        "ratio_stderr": ratio_error,
        "reverse_mean": reverse,
        "reverse_stderr": reverse_error,
    }
