"""One-sided differences: the trainer gives every sampled token less than the engine says.

Sampling from the k best tokens, or from the smallest set with mass p, divides what is left by its mass m:
s = t - log m >= t, so d = log m <= 0 for every token and mean exp(d) = mean m < 1 beyond its error, which no fault
that leaves the engine's values the true sampling distribution can do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.chance import clustered_mean, normal_tail, sign_test
from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class OneSided:
    """How one-sided d is, and where."""

    negative: int
    positive: int
    p: float
    explained: float
    """share of all difference below 0 less the share above, times the same for the number of tokens"""
    peaked_at_floor: float
    """of tokens to which the trainer gives more than half and less than 99 % of the mass, those with d at the floor"""
    ratio_mean: float
    best_candidate: float
    """how well "d at the floor" happens with probability exp(s), as it would for the best candidate's s: 0..1"""
    per_step: dict[int, float]


def one_sided(window: Window) -> OneSided | None:
    """None unless differences below 0 outweigh those above."""
    return window.remember("one_sided", _one_sided)  # type: ignore[no-any-return]


def _one_sided(window: Window) -> OneSided | None:
    d, t = window.d, window.t
    if not len(d) or window.quiet:
        return None
    noise = _noise(window)
    below, above = d < -noise, d > noise
    negative, positive = int(below.sum()), int(above.sum())
    ratio, error = clustered_mean(np.exp(np.minimum(d, 50.0)), window.of)
    if ratio >= 1.0:
        return None
    weight = np.minimum(np.abs(d), 20.0)
    total = float(window.weight.sum())
    explained = float(weight[below].sum() - weight[above].sum()) / total if total > 0 else 0.0
    explained *= max(0.0, (negative - positive) / max(1, negative + positive))
    if explained <= 0.0:
        return None
    peaked = (t > np.log(0.5)) & (t < np.log(0.99))
    at_floor = float((~below)[peaked].mean()) if peaked.any() else 0.0
    gain = np.where(below, weight, 0.0) - np.where(above, weight, 0.0) - noise * 0.1
    return OneSided(
        negative,
        positive,
        max(sign_test(positive, negative), normal_tail((1.0 - ratio) / error) if error > 0 else 0.0),
        explained,
        at_floor,
        ratio,
        _best_candidate_fit(np.exp(np.minimum(window.s, 0.0)), ~below & ~above),
        window.per_step(gain, window.at_step),
    )


def _best_candidate_fit(probability: NDArray[np.float64], agrees: NDArray[np.bool_]) -> float:
    """Brier skill of `probability` as a forecast of `agrees`, as a share of what a calibrated one would have."""
    constant = float(agrees.mean() * (1.0 - agrees.mean()))
    calibrated = float((probability * (1.0 - probability)).mean())
    if constant <= calibrated:
        return 0.0
    forecast = float(((agrees - probability) ** 2).mean())
    return min(1.0, max(0.0, (constant - forecast) / (constant - calibrated)))


def _noise(window: Window) -> NDArray[np.float64]:
    """[N] three times the noise of one token: what tokens with d > 0 show, which truncation cannot make.

    Noise grows with the improbability of the token, so it is measured relative to |t| + 0.02.
    """
    scale = np.abs(window.t) + 0.02
    upper = window.d > 0
    relative = float(np.median(window.d[upper] / scale[upper])) if upper.sum() >= 0.05 * len(upper) else 0.0
    noise: NDArray[np.float64] = np.maximum(window.tolerance[window.clean], 3.0 * 1.4826 * relative * scale)
    return noise
