"""What a cause says of a window of tokens, and the one rule that turns it into a confidence.

The rule. A judge gives two numbers. `p`: how likely the weakest of the tests it requires would come out so without
the fault (all of them must hold, so the largest p of them is valid: an intersection-union test, Berger 1982);
0 where the data cannot occur without the fault at all (a NaN, a null, two different token ids). `explained`: which
part of everything that is wrong in the window the cause accounts for, measured, between 0 and 1.

    confidence = explained / (1 + 9 * B(looks * p)),    B(p) = -e p ln p for p < 1/e, else 1

B is the largest evidence against the null that a p-value can stand for (Sellke, Bayarri, Berger: Calibration of
p Values for Testing Precise Null Hypotheses, 2001); 9 is the prior odds: of ten windows looked at, one holds the
fault. `looks` corrects for looking at every step: see `looks`. A test that holds however often one looks needs no such
correction (`p_always`). Nothing in the rule depends on the cause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PRIOR_ODDS = 9.0
"""odds against a given fault before the window is seen"""


@dataclass(slots=True)
class Finding:
    """One cause's answer about one window."""

    cause: str
    p: float
    explained: float
    summary: str
    evidence: Mapping[str, float | str]
    first_checks: tuple[str, ...]
    tokens: int
    """sample size behind it"""
    step_scores: Mapping[int, float]
    """for each step of the window how much it speaks for the fault (> 0) or against it (< 0)"""
    tier: int = 0
    """0: a mechanism; 1: which sequences, whatever the mechanism; 2: two true distributions that differ; 3: unknown.
    A cause speaks only of what those of lower tiers leave"""
    labels: tuple[tuple[str, str], ...] = field(default=())
    affected: NDArray[np.bool_] | None = None
    """[S] the sequences it is about, where it is not about all of them"""
    claims_differences: bool = False
    """a mechanism that explains d of sampled tokens by a structure in it: only one can be right of the same tokens"""
    p_always: float = 0.0
    """p of a test that holds however often one looks (Ville), and that tells two causes of one shape apart: it bounds
    the confidence, and is not asked when differences are explained away"""


def looks(steps_seen: int, window: int, windows: int) -> float:
    """By how much p is multiplied for having looked at every step so far.

    Windows of one length that do not overlap are independent looks, and there were steps_seen/window of them;
    overlapping ones add at most a factor of 4 (Siegmund's approximation for moving sums, at the levels used here);
    every length of window is a further family of looks.
    """
    return 4.0 * windows * max(1.0, steps_seen / window)


def counted(hits: int, of: int) -> float:
    """What `hits` exact occurrences among `of` explain, 0..1: once is an accident (1/3), twice a fault (3/5).

    Laplace's rule with a prior of one half of an occurrence against: (hits - 1/2) / (of + 1/2).
    """
    return max(0.0, (hits - 0.5) / (of + 0.5))


def strength(p: float) -> float:
    """The probability that p leaves to the fault, before what it explains is asked."""
    if p <= 0.0:
        return 1.0
    bound = 1.0 if p >= 1.0 / math.e else -math.e * p * math.log(p)
    return 1.0 / (1.0 + PRIOR_ODDS * bound)


def accounts_for(finding: Finding, correction: float) -> float:
    """What a finding takes from others."""
    return max(0.0, min(1.0, finding.explained)) * strength(min(1.0, finding.p * correction))


def confidence(finding: Finding, correction: float) -> float:
    """The rule of this module."""
    p = max(min(1.0, finding.p * correction), finding.p_always)
    return max(0.0, min(1.0, finding.explained)) * strength(p)
