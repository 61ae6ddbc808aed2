"""What each importance-sampling correction would do to a step: which fraction it clips or drops at its bounds.

Promises: the trainers' own definitions, applied to the ratios before any of them clipped anything. A token ratio is
r = exp(d), a sequence's is the product R = exp(sum d) over its counted tokens, the geometric one G = exp(mean d).

    token_truncate, token_mask          r > cap: set to cap, or the token is dropped          (TRL 1.16.0)
    sequence_truncate, sequence_mask    R > cap: set to cap, or the sequence is dropped       (TRL 1.16.0)
    reject_token, reject_sequence       r (R) outside [1/cap, cap]: dropped                   (verl 0.9.1 rollout_rs)
    reject_geometric                    G outside [1/1.001, 1.001]: the sequence is dropped   (verl 0.9.1 rollout_rs)
    icepop                              r outside [0.5, 5]: the token is dropped              (IcePop)

verl's rollout_is token and sequence are token_truncate and sequence_truncate under other names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from posttrain_watchdog.consistency.ratios import Ratios

ICEPOP = (0.5, 5.0)
GEOMETRIC = 1.001
MODES = (
    "token_truncate",
    "token_mask",
    "sequence_truncate",
    "sequence_mask",
    "reject_token",
    "reject_sequence",
    "reject_geometric",
    "icepop",
)


def affected_fractions(ratios: Ratios, cap: float) -> Mapping[str, float]:
    """mode -> fraction of tokens (token modes) or sequences (sequence modes) that it clips or drops.

    Token bounds other than the cap are read off the sketch (3 % of relative width).
    """
    n = ratios.tokens
    counts = np.concatenate(ratios.sequence_tokens) if ratios.sequence_tokens else np.zeros(0)
    if not n:
        return {}
    total = np.concatenate(ratios.sequence_d)[counts > 0]
    counts = counts[counts > 0]
    log_cap = math.log(cap)
    over = ratios.over_cap / n
    product_over = float((total > log_cap).mean())
    return {
        "token_truncate": over,
        "token_mask": over,
        "sequence_truncate": product_over,
        "sequence_mask": product_over,
        "reject_token": over + ratios.sketch.below(-log_cap),
        "reject_sequence": float((np.abs(total) > log_cap).mean()),
        "reject_geometric": float((np.abs(total / counts) > math.log(GEOMETRIC)).mean()),
        "icepop": 1.0 - ratios.sketch.below(math.log(ICEPOP[1])) + ratios.sketch.below(math.log(ICEPOP[0])),
    }


def sequence_weights(ratios: Ratios, cap: float) -> Mapping[str, tuple[float, float]]:
    """mode -> (mean sequence weight as it is, as length and k3 alone predict it) for mask and truncation at the cap.

    A sum over T tokens has variance v = 2 T k3 in the logarithm. With log R normal and E[R] = 1, so with mean -v/2,
    E[R; R < c] = Phi((ln c - v/2) / sqrt(v)), and truncation adds c P(R > c) = c Phi(-(ln c + v/2) / sqrt(v)): long
    sequences alone push the masked mean to 0. Only a departure from the prediction says anything about the tokens.
    """
    if not ratios.tokens:
        return {}
    counts = np.concatenate(ratios.sequence_tokens)
    total = np.concatenate(ratios.sequence_d)[counts > 0]
    counts = counts[counts > 0]
    weight = np.exp(np.minimum(total, 700.0))
    log_cap = math.log(cap)
    v = np.maximum(2.0 * counts * max(0.0, ratios.mean("k3")), 1e-12)
    root = np.sqrt(v)
    kept = _phi((log_cap - v / 2.0) / root)
    clipped = cap * _phi(-(log_cap + v / 2.0) / root)
    inside = total <= log_cap
    return {
        "mask": (float(np.where(inside, weight, 0.0).mean()), float(kept.mean())),
        "truncate": (float(np.minimum(weight, cap).mean()), float((kept + clipped).mean())),
    }


_ERF: Callable[[np.ndarray], np.ndarray] = np.vectorize(math.erf, otypes=[np.float64])


def _phi(z: np.ndarray) -> np.ndarray:
    """The normal distribution function."""
    return 0.5 * (1.0 + _ERF(z / math.sqrt(2.0)))
