"""Functions of one number at a time: mathematics, rounding, clamping, the calendar.

Each takes [T, S] values and [T, 1] scalar arguments and returns [T, S]. Definitions: prometheus@2.42
promql/functions.go; NaN and infinities as Go's math has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posttrain_watchdog.promql.columns import Floats

Elementwise = Callable[..., Floats]
DAY = 86_400.0


def round_to(values: Floats, nearest: Floats | float = 1.0) -> Floats:
    """Half rounds up; computed with the inverse, which makes fewer rounding errors (as Prometheus does)."""
    inverse = 1.0 / np.asarray(nearest, dtype=np.float64)
    return np.floor(values * inverse + 0.5) / inverse


def sgn(values: Floats) -> Floats:
    return np.sign(values)


def _max(a: Floats, b: Floats) -> Floats:
    """Go's math.Max: infinity wins over NaN."""
    return np.where((a == np.inf) | (b == np.inf), np.inf, np.maximum(a, b))


def _min(a: Floats, b: Floats) -> Floats:
    return np.where((a == -np.inf) | (b == -np.inf), -np.inf, np.minimum(a, b))


def clamp_min(values: Floats, low: Floats) -> Floats:
    return _max(values, low)


def clamp_max(values: Floats, high: Floats) -> Floats:
    return _min(values, high)


def clamp(values: Floats, low: Floats, high: Floats) -> Floats:
    return _max(low, _min(high, values))


def modulo(values: Floats, divisor: Floats) -> Floats:
    """Go's math.Mod: the sign is that of the dividend."""
    return np.fmod(values, divisor)


# --- the calendar, UTC, on values that are seconds since the epoch


def _days(values: Floats) -> tuple[NDArray[np.datetime64], Floats]:
    """([...] calendar days, where the value is a usable time)."""
    usable = np.isfinite(values) & (np.abs(values) < 8e12)
    return (
        np.floor(np.where(usable, np.trunc(values), 0.0) / DAY).astype(np.int64).astype("datetime64[D]"),
        np.where(usable, 0.0, np.nan),
    )


def _whole(days: NDArray[Any]) -> Floats:
    return days.astype(np.int64).astype(np.float64)


def _seconds(values: Floats) -> Floats:
    """Seconds within the day; Go truncates the value to whole seconds first."""
    whole = np.trunc(values)
    return whole - np.floor(whole / DAY) * DAY


def year(values: Floats) -> Floats:
    days, gap = _days(values)
    return days.astype("datetime64[Y]").astype(np.int64) + 1970.0 + gap


def month(values: Floats) -> Floats:
    days, gap = _days(values)
    return days.astype("datetime64[M]").astype(np.int64) % 12 + 1.0 + gap


def day_of_month(values: Floats) -> Floats:
    days, gap = _days(values)
    return _whole(days - days.astype("datetime64[M]")) + 1.0 + gap


def day_of_year(values: Floats) -> Floats:
    days, gap = _days(values)
    return _whole(days - days.astype("datetime64[Y]")) + 1.0 + gap


def day_of_week(values: Floats) -> Floats:
    days, gap = _days(values)
    return (_whole(days) + 4) % 7 + gap  # the epoch was a Thursday


def days_in_month(values: Floats) -> Floats:
    days, gap = _days(values)
    months = days.astype("datetime64[M]")
    length = (months + np.timedelta64(1, "M")).astype("datetime64[D]") - months.astype("datetime64[D]")
    return _whole(length) + gap


def hour(values: Floats) -> Floats:
    return np.floor(_seconds(values) / 3600.0)


def minute(values: Floats) -> Floats:
    return np.floor(_seconds(values) / 60.0) % 60.0


CALENDAR: dict[str, Elementwise] = {
    f.__name__: f for f in (year, month, day_of_month, day_of_year, day_of_week, days_in_month, hour, minute)
}

MATHEMATICS: dict[str, Elementwise] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "ln": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "rad": lambda values: values * np.pi / 180.0,
    "deg": lambda values: values * 180.0 / np.pi,
    "sgn": sgn,
    "round": round_to,
    "clamp_min": clamp_min,
    "clamp_max": clamp_max,
}

ARITHMETIC: dict[str, Elementwise] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": modulo,
    "^": np.power,
    "atan2": np.arctan2,
}

COMPARISON: dict[str, Callable[..., NDArray[np.bool_]]] = {
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    ">=": np.greater_equal,
    "<=": np.less_equal,
}
