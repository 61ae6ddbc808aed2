"""What a judge says, and the one rule that makes a confidence of it.

A finding rests on witnesses. Each has odds: how many times likelier its observation is if the cause is at work than if
it is not. Prior odds are 1 to 10 (before looking, most suspicions are wrong), witnesses multiply, and

    confidence = odds / (1 + odds),   odds = 0.1 x product of the witnesses' odds.

Odds are taken from this scale and nowhere else, except that a statistical test with false-alarm probability p counts
min(1/p, 100). One strong witness alone is 0.5: said aloud, barely. A plain statement of a program is 0.91.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

PRIOR = 0.1
STATED = 100.0
"""a program says so in as many words, or a number can mean nothing else (NaN, an exact zero that is never exact)"""
STRONG = 10.0
"""the observation is rare otherwise"""
SUPPORT = 3.0
"""it fits, and other causes would show it too"""
AGAINST = 1 / 3
"""it would be unusual if the cause were at work"""
STRONGLY_AGAINST = 1 / 10


def of_test(p: float) -> float:
    """Odds of a test with false-alarm probability `p`."""
    return min(1 / p, 100.0) if p > 0 else 100.0


@dataclass(slots=True)
class Finding:
    """What one judge found. `witnesses`: what was seen -> odds."""

    summary: str
    """one sentence with the figures"""
    witnesses: Mapping[str, float]
    evidence: Mapping[str, float | str]
    first_checks: tuple[str, str, str]
    first_step: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def confidence(self) -> float:
        odds = PRIOR * prod(self.witnesses.values())
        return odds / (1 + odds)
