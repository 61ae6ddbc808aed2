"""Functions of one window that read a slope: rate, increase, delta, irate, idelta, deriv, predict_linear, smoothing.

Same form as over_time. Definitions: prometheus@2.42 promql/functions.go extrapolatedRate, instantValue,
linearRegression, funcHoltWinters.
"""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.promql.columns import Bools, Floats
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.over_time import Result, WindowFunction, exact_sum, filled
from posttrain_watchdog.promql.windows import Window


def _enough(window: Window) -> Bools | None:
    """Where there are two samples."""
    if window.count is None:
        return None if window.rows >= 2 else np.zeros(window.values.shape[1], dtype=np.bool_)
    return window.count >= 2


def _too_short(window: Window) -> Result | None:
    if window.rows >= 2:
        return None
    none = np.zeros(window.values.shape[1], dtype=np.bool_)
    return np.zeros(window.values.shape[1]), none


def _extrapolated(window: Window, counter: bool, per_second: bool) -> Result:
    short = _too_short(window)
    if short is not None:
        return short
    first_times, first = window.front()
    last_times, last = window.back(0)
    change = last - first
    if counter:
        # padding is NaN and compares false
        fell = window.values[1:] < window.values[:-1]
        some = np.flatnonzero(fell.any(axis=0))
        if len(some):
            change[some] += np.where(fell[:, some], window.values[:-1, some], 0.0).sum(axis=0)
    counts = window.counts()
    if window.count is None:
        # all series share their times: the factors are the same for all but for the start at zero
        first_times, last_times, counts = first_times[:1], last_times[:1], counts[:1]
    to_start = (first_times - window.place.start) / 1000.0
    to_end = (window.place.end - last_times) / 1000.0
    sampled = (last_times - first_times) / 1000.0
    average = sampled / (counts - 1)
    if counter:
        rising = (change > 0) & (first >= 0)
        to_zero = sampled * (first / np.where(rising, change, 1.0))
        to_start = np.where(rising & (to_zero < to_start), to_zero, to_start)
    threshold = average * 1.1
    factor = sampled + np.where(to_start < threshold, to_start, average / 2)
    factor = (factor + np.where(to_end < threshold, to_end, average / 2)) / sampled
    if per_second:
        factor = factor / ((window.place.end - window.place.start) / 1000.0)
    return change * factor, _enough(window)


def rate(window: Window) -> Result:
    return _extrapolated(window, counter=True, per_second=True)


def increase(window: Window) -> Result:
    return _extrapolated(window, counter=True, per_second=False)


def delta(window: Window) -> Result:
    return _extrapolated(window, counter=False, per_second=False)


def irate(window: Window) -> Result:
    short = _too_short(window)
    if short is not None:
        return short
    times, last = window.back(0)
    earlier, previous = window.back(1)
    change = np.where(last < previous, last, last - previous)
    return change / ((times - earlier) / 1000.0), _enough(window)


def idelta(window: Window) -> Result:
    short = _too_short(window)
    if short is not None:
        return short
    return window.back(0)[1] - window.back(1)[1], _enough(window)


def _regression(window: Window, origin: Floats) -> tuple[Floats, Floats]:
    """([S] slope a second, [S] value at `origin` (milliseconds, [S] or [1]))."""
    counts = window.counts()
    valid = window.valid()
    values = filled(window, 0.0)
    x = (window.times - origin) / 1000.0
    if valid is not None:
        x = np.where(valid, x, 0.0)
    mean_x = exact_sum(np.broadcast_to(x, values.shape)) / counts
    mean_y = exact_sum(values) / counts
    from_mean = x - mean_x
    if valid is not None:
        from_mean = np.where(valid, from_mean, 0.0)
    slope = (from_mean * (values - mean_y)).sum(axis=0) / (from_mean**2).sum(axis=0)
    intercept = mean_y - slope * mean_x
    first = window.values[0]
    same = window.values == first
    if valid is not None:
        same |= ~valid
    constant = same.all(axis=0)
    slope = np.where(constant, np.where(np.isinf(first), np.nan, 0.0), slope)
    return slope, np.where(constant, np.where(np.isinf(first), np.nan, first), intercept)


def deriv(window: Window) -> Result:
    short = _too_short(window)
    if short is not None:
        return short
    return _regression(window, window.front()[0].astype(np.float64))[0], _enough(window)


def predict_linear(window: Window, seconds: float) -> Result:
    short = _too_short(window)
    if short is not None:
        return short
    slope, intercept = _regression(window, np.array([window.place.step], dtype=np.float64))
    return slope * seconds + intercept, _enough(window)


def double_exponential_smoothing(window: Window, smoothing: float, trend: float) -> Result:
    for name, factor in (("smoothing", smoothing), ("trend", trend)):
        if not 0 < factor < 1:
            raise PromQLError(f"invalid {name} factor: expected between 0 and 1, got {factor:g}")
    short = _too_short(window)
    if short is not None:
        return short
    values = window.values
    valid = window.valid()
    before = np.zeros(values.shape[1])
    level = values[0].copy()
    slope = values[1] - values[0]
    for i in range(1, window.rows):
        new_slope = slope if i == 1 else trend * (level - before) + (1 - trend) * slope
        new_level = smoothing * values[i] + (1 - smoothing) * (level + new_slope)
        if valid is None:
            before, level, slope = level, new_level, new_slope
        else:
            here = valid[i]
            before, level = np.where(here, level, before), np.where(here, new_level, level)
            slope = np.where(here, new_slope, slope)
    return level, _enough(window)


FUNCTIONS: dict[str, WindowFunction] = {
    function.__name__: function
    for function in (
        rate,
        increase,
        delta,
        irate,
        idelta,
        deriv,
        predict_linear,
        double_exponential_smoothing,
    )
}
