"""Aggregations over groups of series, for all steps at once. Source: prometheus@2.42 promql/engine.go aggregation.

Promises: groups depend on labels alone and are kept with the frame; NaN samples count as Prometheus counts them.
"""

from __future__ import annotations

import math
import re

import numpy as np

from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql.columns import Bools, Columns, Floats, Ints, nothing
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.frame import Frame, Groups, number, with_labels

SIMPLE = frozenset({"sum", "avg", "count", "min", "max", "group", "stddev", "stdvar"})
INT64 = 2.0**63
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
COUNTED = 200_000
"""samples whose values become labels"""


def aggregate(
    operator: str, body: Columns, labels: tuple[str, ...], without: bool, parameter: Floats | str | None
) -> Columns:
    """`parameter`: [T] for topk, bottomk and quantile; the label for count_values."""
    if operator == "count_values":
        if not isinstance(parameter, str):
            raise PromQLError("count_values expects a label name")
        if not LABEL_NAME.fullmatch(parameter):
            raise PromQLError(f"invalid label name {parameter!r} in count_values")
        return _count_values(body, labels, without, parameter)
    if operator in ("topk", "bottomk") and not isinstance(parameter, str) and parameter is not None:
        odd = parameter[~((parameter > -INT64) & (parameter < INT64))]
        if len(odd):
            raise PromQLError(f"scalar value {odd[0]} overflows int64")
    if body.values.shape[1] == 0 or body.steps == 0:
        return nothing(body.steps)
    groups = body.frame.grouped(labels, without)
    if operator in SIMPLE:
        return _simple(operator, body, groups)
    if parameter is None or isinstance(parameter, str):
        raise PromQLError(f"{operator} expects a number")
    if operator == "quantile":
        return _quantile(body, groups, parameter)
    if operator in ("topk", "bottomk"):
        return _ranked(body, groups, parameter, operator == "topk")
    raise PromQLError(f"aggregation {operator} is not supported")


def _reduce(ufunc: np.ufunc, values: np.ndarray, groups: Groups) -> np.ndarray:
    """[T, G]"""
    if len(groups.frame) == 1:
        found: np.ndarray = ufunc.reduce(values, axis=1, keepdims=True)
        return found
    return ufunc.reduceat(values[:, groups.order], groups.starts, axis=1)


def _counts(body: Columns, groups: Groups) -> tuple[Floats, Bools | None]:
    """([T, G] samples a group, where there is any)."""
    if body.present is None:
        sizes = np.bincount(groups.of, minlength=len(groups.frame)).astype(np.float64)
        return np.broadcast_to(sizes, (body.steps, len(sizes))), None
    counts = _reduce(np.add, body.present.astype(np.float64), groups)
    there = counts > 0
    return counts, None if there.all() else there


def _simple(operator: str, body: Columns, groups: Groups) -> Columns:
    counts, there = _counts(body, groups)
    if operator == "count":
        values = counts
    elif operator == "group":
        values = np.ones(counts.shape)
    elif operator == "min":
        values = _reduce(np.fmin, body.filled(np.nan), groups)
    elif operator == "max":
        values = _reduce(np.fmax, body.filled(np.nan), groups)
    elif operator == "sum":
        values = _reduce(np.add, body.filled(0.0), groups)
    elif operator == "avg":
        values = _mean(body.filled(0.0), counts, groups)
    else:
        values = _variance(body, counts, groups)
        if operator == "stddev":
            values = np.sqrt(values)
    return Columns(groups.frame, values, there)


def _mean(values: Floats, counts: Floats, groups: Groups) -> Floats:
    mean = _reduce(np.add, values, groups) / counts
    if np.isinf(mean).any():
        # a sum may overflow where the mean does not
        finite = _reduce(np.logical_and, np.isfinite(values), groups)
        scaled = _reduce(np.add, values / np.maximum(counts, 1)[:, groups.of], groups)
        mean = np.where(np.isinf(mean) & finite, scaled, mean)
    return mean


def _variance(body: Columns, counts: Floats, groups: Groups) -> Floats:
    values = body.filled(0.0)
    # shifted by one of its samples, a constant group has variance 0 exactly
    shift = _reduce(np.fmax, body.filled(np.nan), groups)
    shifted = values - shift[:, groups.of]
    if body.present is not None:
        shifted = np.where(body.present, shifted, 0.0)
    mean = _reduce(np.add, shifted, groups) / counts
    squares = (shifted - mean[:, groups.of]) ** 2
    if body.present is not None:
        squares = np.where(body.present, squares, 0.0)
    # a single sample has variance 0, even an infinite or NaN one
    return np.where(counts == 1, 0.0, _reduce(np.add, squares, groups) / counts)


def _quantile(body: Columns, groups: Groups, quantiles: Floats) -> Columns:
    counts, there = _counts(body, groups)
    values = np.empty(counts.shape)
    for t in range(body.steps):
        columns = groups.order if body.present is None else groups.order[body.present[t, groups.order]]
        values[t] = _quantiles(body.values[t, columns], groups.of[columns], counts[t], float(quantiles[t]))
    return Columns(groups.frame, values, there)


def _quantiles(samples: Floats, of: Ints, counts: Floats, quantile: float) -> Floats:
    """[G] quantile of the samples of each group; `of` ascends. NaN samples sort lowest, as in Prometheus."""
    if not 0 <= quantile <= 1:
        outside = np.nan if math.isnan(quantile) else -np.inf if quantile < 0 else np.inf
        return np.full(len(counts), outside)
    odd = np.isnan(samples)
    lowered = np.where(odd, -np.inf, samples)
    ordered = np.append(lowered[np.lexsort((lowered, of))], np.nan)
    nans = np.bincount(of, weights=odd, minlength=len(counts))
    starts = np.cumsum(counts) - counts
    rank = quantile * np.maximum(counts - 1, 0)
    lower = np.floor(rank)
    upper = np.minimum(np.maximum(counts - 1, 0), lower + 1)
    weight = rank - lower
    low = np.where(lower < nans, np.nan, ordered[(starts + lower).astype(np.int64)])
    high = np.where(upper < nans, np.nan, ordered[(starts + upper).astype(np.int64)])
    return low * (1 - weight) + high * weight


def _ranked(body: Columns, groups: Groups, parameter: Floats, top: bool) -> Columns:
    """topk and bottomk keep whole series; for one step the columns come out in order of rank."""
    mask = body.mask()
    kept = np.zeros(mask.shape, dtype=np.bool_)
    chosen = np.empty(0, dtype=np.int64)
    for t in range(body.steps):
        k = min(int(parameter[t]), len(body.frame))
        if k < 1:
            continue
        values = -body.values[t] if top else body.values[t]
        # NaN ranks last either way: lexsort puts it there
        order = np.lexsort((values, groups.of))
        order = order[mask[t, order]]
        of = groups.of[order]
        begins = np.searchsorted(of, np.arange(len(groups.frame)))
        chosen = order[np.arange(len(order)) - begins[of] < k]
        kept[t, chosen] = True
    if body.steps == 1:
        return Columns(body.frame.taken(chosen), body.values[:, chosen])
    return Columns(body.frame, body.values, kept)


def _count_values(body: Columns, labels: tuple[str, ...], without: bool, label: str) -> Columns:
    """Labels come from values here, so nothing can be kept between evaluations."""
    mask = body.mask()
    dropped = without and label in labels
    if not without and label in labels:
        labels = tuple(name for name in labels if name != label)
    elif without and label not in labels:
        labels = (*labels, label)
    groups = body.frame.grouped(labels, without)
    if int(np.count_nonzero(mask)) > COUNTED:
        raise PromQLError(f"count_values of more than {COUNTED:,} samples")
    cells = [(t, s) for t, s in zip(*(axis.tolist() for axis in np.nonzero(mask)), strict=True)]
    # `without (x) ("x", ...)` removes the very label that was set
    keys: list[Metric] = [
        groups.frame.metrics[groups.of[s]]
        if dropped
        else with_labels(groups.frame.metrics[groups.of[s]], {label: format_value(float(body.values[t, s]))})
        for t, s in cells
    ]
    of, firsts = number(keys)
    values = np.zeros((body.steps, len(firsts)))
    for (t, _), column in zip(cells, of.tolist(), strict=True):
        values[t, column] += 1
    there = values > 0
    return Columns(Frame([keys[i] for i in firsts], passing=True), values, None if there.all() else there)


def format_value(value: float) -> str:
    """Go's strconv.FormatFloat(value, 'f', -1, 64): the shortest digits that read back, never an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    if "e" in text:
        text = np.format_float_positional(value, trim="-")
    return text.removesuffix(".0")
