"""The calibration factor in force, and what the data recommend instead.

The guide's dynamic calibration is factor = min(1, f0 exp(-step / decay)). Every `correction_freq` steps, over the
last `correction_window` steps, the data say which factor would bring the mean ratio to 1, and which cap keeps the
effective sample size above a fraction. Promises: memory for at most correction_window / correction_freq + 1 sketches.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from posttrain_watchdog.consistency.ratios import Ratios
from posttrain_watchdog.consistency.settings import Settings
from posttrain_watchdog.consistency.sketch import Sketch

ENOUGH = 0.3
"""fraction of the sample that the weights should leave effective: verl warns below it"""
CAPS = tuple(float(c) for c in np.geomspace(1.05, 100.0, 40))


def calibration_factor(step: int, settings: Settings) -> float:
    """min(1, f0 exp(-step / decay)); constant where decay is 0."""
    if settings.decay_steps <= 0:
        return min(1.0, settings.initial_factor)
    return min(1.0, settings.initial_factor * math.exp(-max(0, step) / settings.decay_steps))


@dataclass(slots=True)
class _Block:
    steps: int = 0
    tokens: int = 0
    ratio: float = 0.0
    sketch: Sketch = field(default_factory=Sketch)


class Recommendation:
    """Collects steps in blocks of `correction_freq` and speaks at the end of each."""

    def __init__(self, settings: Settings) -> None:
        self._freq = settings.correction_freq
        self._blocks: deque[_Block] = deque(maxlen=max(1, settings.correction_window // settings.correction_freq))
        self._open = _Block()
        self.factor = math.nan
        """1 / mean ratio of the window: multiplied with it the weights average 1"""
        self.cap = math.nan
        """largest cap with at least ENOUGH of the sample effective; infinite where none is needed"""

    def observe(self, ratios: Ratios) -> None:
        """One finished step."""
        block = self._open
        block.steps += 1
        block.tokens += ratios.tokens
        block.ratio += ratios.tokens + ratios.total("ratio_less_1")
        block.sketch.add(ratios.sketch)
        if block.steps >= self._freq:
            self._blocks.append(block)
            self._open = _Block()
            self._recommend()

    def _recommend(self) -> None:
        tokens = sum(b.tokens for b in self._blocks)
        ratio = sum(b.ratio for b in self._blocks)
        if not tokens or ratio <= 0.0:
            return
        self.factor = tokens / ratio
        whole = Sketch()
        for block in self._blocks:
            whole.add(block.sketch)
        self.cap = recommended_cap(whole)


def recommended_cap(sketch: Sketch, enough: float = ENOUGH) -> float:
    """The largest cap of CAPS at which (sum w)^2 / (n sum w^2) of min(exp(d), cap) is at least `enough`.

    Infinite where the uncapped weights have it, NaN where no cap reaches it.
    """
    values, counts = sketch.histogram()
    if not len(values):
        return math.nan
    ratio = np.exp(np.clip(values, -60.0, 60.0))
    for cap in (math.inf, *reversed(CAPS)):
        weight = np.minimum(ratio, cap)
        total = float((counts * weight).sum())
        if total * total >= enough * float(counts.sum()) * float((counts * weight * weight).sum()):
            return cap
    return math.nan
