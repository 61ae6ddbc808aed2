"""The size of d over the steps: a level before, a level now, and whether it still grows.

Works on the per-step sizes (History.level) that the monitor keeps for the whole run, so a fault is compared with the
run's own past even where its tokens are long gone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.chance import two_sided
from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLOOR = 1e-6
RISE = 3.0
"""times the run's own level that count as a rise (the public record's first mark against a run's own baseline)"""


@dataclass(slots=True)
class Course:
    """How the size of d went."""

    onset: int | None
    """first step of the raised level; None where the level is what it was at the first step"""
    p: float
    """that the two levels are one"""
    before: float
    """size of d before the onset (geometric mean); of all steps without an onset"""
    now: float
    """size of d since the onset (geometric mean)"""
    exponent: float
    """of the growth of the size with the steps since the onset: 0 level, 1/2 a random walk, 1 a straight line"""
    exponent_error: float
    per_step: dict[int, float]
    """log-likelihood ratio of the raised level"""


def course(window: Window) -> Course | None:
    """None with fewer than two steps."""
    return window.remember("course", _course)  # type: ignore[no-any-return]


def _course(window: Window) -> Course | None:
    sizes = {k: v for k, v in window.history.level.items() if window.history.tokens.get(k, 0) >= 8}
    if not sizes:
        return None
    steps = np.array(sorted(sizes))
    level = np.log(np.maximum([sizes[int(k)] for k in steps], FLOOR))
    n = len(steps)
    if n < 2:
        return Course(None, 1.0, math.exp(level[0]), math.exp(level[0]), 0.0, math.inf, {int(steps[0]): 0.0})
    left = np.arange(1, n)
    total = np.cumsum(level)
    gap = (total[-1] - total[:-1]) / (n - left) - total[:-1] / left
    between = gap**2 * left * (n - left) / n
    between[gap <= 0] = -1.0
    cut = int(np.argmax(between)) + 1
    low, high = float(level[:cut].mean()), float(level[cut:].mean())
    residual = np.concatenate([level[:cut] - low, level[cut:] - high])
    spread = max(0.05, math.sqrt(float((residual**2).sum()) / max(1, n - 2)))
    z = (high - low) / (spread * math.sqrt(1.0 / cut + 1.0 / (n - cut)))
    risen = between[cut - 1] > 0 and high - low > math.log(RISE)
    start = _first_raised(level, cut, low, high) if risen else 0
    since = level[start:]
    middle = (low + high) / 2.0
    scale = max(0.05, spread) ** 2
    return Course(
        int(steps[start]) if risen else None,
        min(1.0, two_sided(z) * n) if risen else 1.0,
        math.exp(low if risen else float(level.mean())),
        math.exp(float(since.mean())),
        *_exponent(since),
        {int(k): float((high - low) * (v - middle) / scale) for k, v in zip(steps, level, strict=True)}
        if risen
        else {int(k): 1.0 for k in steps},
    )


def _first_raised(level: NDArray[np.float64], cut: int, low: float, high: float) -> int:
    """The cut moved back over steps that are already nearer (in the logarithm) to what follows than to before.

    A fault that grows starts small: the least-squares cut sits where it has become large.
    """
    before = level[:cut]
    quiet = float(np.median(before[: max(1, cut - 3)]))
    wide = max(float(np.abs(before[: max(1, cut - 3)] - quiet).max()), math.log(RISE))
    start = cut
    while start > 0 and level[start - 1] > quiet + wide:
        start -= 1
    return start


def _exponent(since: NDArray[np.float64]) -> tuple[float, float]:
    """(slope of log size on log of steps since the onset, its standard error; infinite below four steps)."""
    n = len(since)
    if n < 4:
        return 0.0, math.inf
    x = np.log(np.arange(1, n + 1))
    x = x - x.mean()
    sxx = float(x @ x)
    slope = float(x @ since) / sxx
    residual = since - since.mean() - slope * x
    spread = max(0.05, math.sqrt(float(residual @ residual) / (n - 2)))
    return slope, spread / math.sqrt(sxx)


def growing(when: Course) -> float:
    """Posterior of "grows at least as a random walk" (exponent 1/2 or its estimate, if larger) against "level" (0)."""
    if not math.isfinite(when.exponent_error):
        return 0.5
    ahead = max(0.5, when.exponent)
    log_odds = (when.exponent**2 - (when.exponent - ahead) ** 2) / (2.0 * when.exponent_error**2)
    return 1.0 / (1.0 + math.exp(-max(-700.0, min(700.0, log_odds if when.exponent > 0 else -abs(log_odds)))))
