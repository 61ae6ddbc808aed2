"""Trainer and engine drift apart steadily, still inside the limits.

Guards: the growth must show in every sixth of the window (a switch of data or settings is a step, an asynchronous
warm-up a plateau), double the level, pass a trend test that respects autocorrelation, and reach a level that matters;
differences at the float floor double without meaning anything. Growth that follows the samples' age is lag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.incidents.finding import SUPPORT, Finding, of_test
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.statistics import RECENT, departure, slope

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIGURES = (
    # full name, neutral value, least level that matters, factor that counts as growth
    ("posttrain_kl_k3", 0.0, 2e-4, 3.0),
    ("posttrain_logprob_difference_abs_mean", 0.0, 5e-3, 2.0),
    ("posttrain_trainer_mismatch_kl_k3", 0.0, 2e-4, 3.0),
    ("posttrain_trainer_logprob_difference_abs_mean", 0.0, 5e-3, 2.0),
    ("posttrain_trainer_mult_prob_error", 1.0, 5e-3, 2.0),
    ("posttrain_trainer_probability_difference_mean", 0.0, 2e-3, 2.0),
    ("posttrain_trainer_log_perplexity_gap_abs", 0.0, 5e-3, 2.0),
)
_LEAST = 18
_LATE = 45
"""Window in which a growth that began late is looked for."""
_CLEAR = 14.0
"""Rise over the scatter of block means; a random walk reaches it rarely."""
_ERROR = 0.02
"""Divided by the number of steps, because the test is looked at after each of them."""
_BLOCKS = 6


def judge(history: History) -> Finding | None:
    for name, neutral, floor, factor in _FIGURES:
        at, read = history.track(name).finite()
        level = np.abs(read - neutral)
        found = _growth(at, level, floor, factor)
        if found is None and len(level) > _LATE and _is_record(level):
            at, level = at[-_LATE:], level[-_LATE:]
            found = _growth(at, level, floor, factor)
        if found is not None and not _samples_grow_older(history, at):
            return _finding(history, name, at, level, found)
    return None


def _samples_grow_older(history: History, at: NDArray[np.float64]) -> bool:
    """Whether the samples' lag rises over the window: then a growing difference is what lag does."""
    lag_at, lag = history.trainer("staleness_mean").finite()
    lag = lag[(lag_at >= at[0]) & (lag_at <= at[-1])]
    return len(lag) >= 2 * RECENT and float(np.median(lag[-RECENT:])) > float(np.median(lag[:RECENT])) + 0.5


def _is_record(level: NDArray[np.float64]) -> bool:
    """Whether the last steps lie above all there was before the window: a wandering level is no growth."""
    earlier = np.lib.stride_tricks.sliding_window_view(level[: len(level) - _LATE + RECENT], RECENT)
    return float(np.median(level[-RECENT:])) > 1.1 * float(np.median(earlier, axis=1).max())


def _p_of_line(at: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """p of a rising line that stands out clearly from the scatter around it; 1 if there is none."""
    blocks = [float(np.median(part)) for part in np.array_split(values, _BLOCKS)]
    rise = (blocks[-1] - blocks[0]) * _BLOCKS / (_BLOCKS - 1)
    if rise < _CLEAR * _scatter(at, values):
        return 1.0
    trend = slope(at, values)
    return trend.p if trend.per_step > 0 else 1.0


def _scatter(at: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """Root mean square distance of ten block means from a straight line."""
    x, y = (np.array([part.mean() for part in np.array_split(v, 10)]) for v in (at, values))
    return float(np.std(y - np.polyval(np.polyfit(x, y, 1), x)))


def _growth(
    at: NDArray[np.float64], level: NDArray[np.float64], floor: float, factor: float
) -> tuple[float, float, float, float] | None:
    """(level at the start, at the end, factor, p) of a steady growth; None if it is none."""
    if len(level) < _LEAST or float(np.median(level[-5:])) < floor:
        return None
    logs = np.log(np.maximum(level, floor / 100))
    blocks = np.array([np.median(part) for part in np.array_split(logs, _BLOCKS)])
    rises = np.diff(blocks)
    rise = float(blocks[-1] - blocks[0])
    # every block above the one before it, and none carries more than half of the rise
    if rise <= 0 or rises.min() <= 0 or rises.max() > 0.5 * rise:
        return None
    rise *= _BLOCKS / (_BLOCKS - 1)
    if rise < np.log(factor) or float(np.median(level[-5:])) < level[:5].max():
        return None
    # a linear growth is bent in logs and an exponential one without them: the straighter of the two is judged
    p = min(_p_of_line(at, logs), _p_of_line(at, level))
    if p > _ERROR / len(level):
        return None
    return float(np.median(level[:5])), float(np.median(level[-5:])), float(np.exp(rise)), p


def _finding(
    history: History,
    name: str,
    at: NDArray[np.float64],
    level: NDArray[np.float64],
    found: tuple[float, float, float, float],
) -> Finding:
    start, end, _, p = found
    witnesses = {"trend": of_test(p)}
    evidence: dict[str, float | str] = {
        "figure": name,
        "level": f"{start:.3g} -> {end:.3g} over {at[-1] - at[0]:g} steps",
        "factor": round(end / start, 2),
        "p of the trend": float(f"{p:.2g}"),
    }
    for short in ("grad_norm", "entropy"):
        _, other = history.trainer(short).finite()
        if len(other) >= _LEAST and abs(np.log(max(np.median(other[-5:]), 1e-9) / max(np.median(other[:5]), 1e-9))) > 1:
            witnesses[f"{short} moves with it"] = SUPPORT
            evidence[short] = f"{np.median(other[:5]):.3g} -> {np.median(other[-5:]):.3g}"
    return Finding(
        summary=f"{name[len('posttrain_') :]} grew from {start:.3g} to {end:.3g} ({end / start:.1f}x) and goes on",
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            "restart the engine alone, with the same weights: does the difference fall back to its start",
            "caches and CUDA graphs after an update: is the prefix cache reset each time",
            "compare the weights' checksums on both sides after an update",
        ),
        first_step=int(departure(at, level)),
    )
