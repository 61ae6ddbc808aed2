"""Functions of one window: `*_over_time`, changes, resets and their like.

Each takes a Window [W, S] and the numbers that follow the range in the call, and returns [S] values and [S] where
there is a result (None: everywhere). Definitions: prometheus@2.42 promql/functions.go.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from posttrain_watchdog.promql.columns import Bools, Floats
from posttrain_watchdog.promql.windows import Window

Result = tuple[Floats, "Bools | None"]
WindowFunction = Callable[..., Result]


def exact_sum(values: Floats) -> Floats:
    """[S] sums over the rows, as exact as Kahan's (which Prometheus uses) where terms cancel."""
    total = values.sum(axis=0)
    size = np.abs(values).sum(axis=0)
    poor = np.flatnonzero((size > 100 * np.abs(total)) & np.isfinite(size))
    if len(poor):
        total[poor] = _neumaier(values[:, poor])
    return total  # type: ignore[no-any-return]


def _neumaier(values: Floats) -> Floats:
    total = np.zeros(values.shape[1])
    carry = np.zeros(values.shape[1])
    for row in values:
        new = total + row
        big = np.abs(total) >= np.abs(row)
        carry += np.where(big, (total - new) + row, (row - new) + total)
        total = new
    return total + carry


def filled(window: Window, value: float) -> Floats:
    """[W, S] values with `value` below the last sample of each series."""
    valid = window.valid()
    return window.values if valid is None else np.where(valid, window.values, value)


def sum_over_time(window: Window) -> Result:
    return exact_sum(filled(window, 0.0)), None


def count_over_time(window: Window) -> Result:
    return window.counts().astype(np.float64), None


def avg_over_time(window: Window) -> Result:
    values = filled(window, 0.0)
    counts = window.counts()
    mean = exact_sum(values) / counts
    # a sum may overflow where the mean does not
    over = np.flatnonzero(np.isinf(mean))
    if len(over):
        some = values[:, over]
        finite = np.isfinite(some).all(axis=0)
        mean[over[finite]] = exact_sum(some[:, finite] / counts[over[finite]])
    return mean, None


def min_over_time(window: Window) -> Result:
    # padding is NaN, which fmin passes over as it does over NaN samples
    return np.fmin.reduce(window.values, axis=0), None


def max_over_time(window: Window) -> Result:
    return np.fmax.reduce(window.values, axis=0), None


def last_over_time(window: Window) -> Result:
    return window.back(0)[1].copy(), None


def present_over_time(window: Window) -> Result:
    return np.ones(window.values.shape[1]), None


def stdvar_over_time(window: Window) -> Result:
    counts = window.counts()
    shifted = window.values - window.values[0]
    valid = window.valid()
    if valid is not None:
        shifted = np.where(valid, shifted, 0.0)
    mean = shifted.sum(axis=0) / counts
    squares = (shifted - mean) ** 2
    if valid is not None:
        squares = np.where(valid, squares, 0.0)
    return squares.sum(axis=0) / counts, None


def stddev_over_time(window: Window) -> Result:
    return np.sqrt(stdvar_over_time(window)[0]), None


def quantile_over_time(window: Window, quantile: float) -> Result:
    return quantile_of(filled(window, np.inf), window.counts(), window.valid(), quantile), None


def quantile_of(values: Floats, counts: np.ndarray, valid: Bools | None, quantile: float) -> Floats:
    """[S] quantile of the first `counts` rows (padding must be +Inf); NaN samples sort lowest, as in Prometheus."""
    series = values.shape[1]
    if np.isnan(quantile):
        return np.full(series, np.nan)
    if quantile < 0 or quantile > 1:
        return np.full(series, -np.inf if quantile < 0 else np.inf)
    odd = np.isnan(values)
    nans = odd.sum(axis=0)
    ordered = np.sort(np.where(odd, -np.inf, values), axis=0)
    rank = quantile * (counts - 1)
    lower = np.maximum(np.floor(rank), 0).astype(np.int64)
    upper = np.minimum(counts - 1, lower + 1)
    weight = rank - np.floor(rank)
    columns = np.arange(series)
    low = np.where(lower < nans, np.nan, ordered[lower, columns])
    high = np.where(upper < nans, np.nan, ordered[upper, columns])
    return low * (1 - weight) + high * weight


def changes(window: Window) -> Result:
    before, after = window.values[:-1], window.values[1:]
    changed = (after != before) & ~(np.isnan(after) & np.isnan(before))
    valid = window.valid()
    if valid is not None:
        changed &= valid[1:]
    return changed.sum(axis=0).astype(np.float64), None


def resets(window: Window) -> Result:
    return (window.values[1:] < window.values[:-1]).sum(axis=0).astype(np.float64), None


FUNCTIONS: dict[str, WindowFunction] = {
    function.__name__: function
    for function in (
        sum_over_time,
        count_over_time,
        avg_over_time,
        min_over_time,
        max_over_time,
        last_over_time,
        present_over_time,
        stdvar_over_time,
        stddev_over_time,
        quantile_over_time,
        changes,
        resets,
    )
}
