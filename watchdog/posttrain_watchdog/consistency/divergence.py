"""Where in the window the two sides diverge: tokens and sequences.

Noise of number formats grows with the improbability of the token, so a difference is measured relative to
|t| + 0.02. A token diverges when it is beyond six standard deviations of the noise that the quietest quarter of
the tokens shows (for normal noise the lower quartile of |x| is 0.3186 of them), and belongs to the few that carry
the difference: those above the size at which "share of sum(d^2)" less "share of tokens" is largest. Where the two
sides agree to the last recorded digit at a tenth of the tokens that are not near certain, the noise is that digit,
and every token beyond it diverges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.chance import two_classes
from posttrain_watchdog.consistency.history import Course, course
from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class Diverging:
    """Clean tokens and their sequences in two classes."""

    tokens: NDArray[np.bool_]
    """[N] diverging"""
    energy: float
    """their share of sum(d^2)"""
    rows: NDArray[np.int64]
    """[R] sequences with at least four clean tokens"""
    level: NDArray[np.float64]
    """[R] log of the mean |d| of the sequence"""
    sequences: NDArray[np.bool_]
    """[R] in the upper class of `level`"""
    sequences_apart: float
    """how far the two classes are apart: 0 as for a normal sample cut in two, 1 for two points"""


def diverging(window: Window) -> Diverging | None:
    return window.remember("diverging", _diverging)  # type: ignore[no-any-return]


def _diverging(window: Window) -> Diverging | None:
    if window.quiet or len(window.d) < 32:
        return None
    size = np.clip(np.abs(window.d), window.tolerance[window.clean], 20.0)
    relative = size / (np.abs(window.t) + 0.02)
    open_ended = np.abs(window.t) > 0.1
    if open_ended.any() and float((~window.off)[open_ended].mean()) > 0.1:
        tokens = window.off
    else:
        tokens = _beyond_noise(size, relative)
    count = np.bincount(window.of, minlength=window.batch.sequences)
    rows = np.flatnonzero(count >= 4)
    if len(rows) < 4:
        return None
    level = np.log(np.bincount(window.of, size, window.batch.sequences)[rows] / count[rows])
    cut, between = two_classes(level)
    apart = max(0.0, (between - 2.0 / math.pi) / (1.0 - 2.0 / math.pi))
    share = float((size[tokens] ** 2).sum() / (size**2).sum())
    return Diverging(tokens, share, rows, level, level > cut, apart)


def _beyond_noise(size: NDArray[np.float64], relative: NDArray[np.float64]) -> NDArray[np.bool_]:
    beyond = relative > 6.0 * float(np.quantile(relative, 0.25)) / 0.3186
    order = np.argsort(-size)
    energy = np.cumsum(size[order] ** 2)
    lead = energy / energy[-1] - np.arange(1, len(size) + 1) / len(size)
    tokens: NDArray[np.bool_] = beyond & (size >= size[order[int(np.argmax(lead))]])
    return tokens


def at_baseline(window: Window, abs_mean: float) -> float:
    """How near mean |d| of the part that should be unaffected is to the run's own level before the fault, 0..1.

    1 where the run has no "before": then nothing contradicts.
    """
    when: Course | None = course(window)
    if when is None or when.onset is None:
        return 1.0
    before = [v for k, v in window.history.abs_mean.items() if k < when.onset]
    digits = float(window.tolerance[window.clean].mean())
    own = max(digits, float(np.mean(before))) if before else digits
    return min(1.0, own / max(abs_mean, 1e-12))
