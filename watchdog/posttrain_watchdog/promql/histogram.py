"""histogram_quantile over classic buckets (`le` labels). Source: prometheus@2.42 promql/quantile.go.

Promises: histograms of the same bounds are computed together; what is irregular (missing or duplicate buckets)
one by one with the same result. Native histograms are out of scope.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql.columns import Columns, Floats
from posttrain_watchdog.promql.frame import Frame, number, value_of

Ints = NDArray[np.int64]


@dataclass(slots=True)
class _Layout:
    """Histograms that share their bounds: `members` are group numbers [H], `columns` [H, B] ascending by bound."""

    bounds: Floats
    members: Ints
    columns: Ints


@dataclass(slots=True)
class _Histograms:
    frame: Frame
    layouts: list[_Layout]


def parse_bound(text: str) -> float | None:
    """A bucket's upper bound, None where the label is no number (the series is then passed over)."""
    if "_" in text or text != text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _arrange(frame: Frame) -> _Histograms:
    bounds = [parse_bound(value_of(m, "le")) for m in frame.metrics]
    usable = [i for i, bound in enumerate(bounds) if bound is not None]
    keys = [(frame.metrics[i].name, tuple(p for p in frame.metrics[i].labels if p[0] != "le")) for i in usable]
    of, firsts = number(keys)
    buckets: list[list[tuple[float, int]]] = [[] for _ in firsts]
    for i, group in zip(usable, of.tolist(), strict=True):
        bound = bounds[i]
        buckets[group].append((0.0 if bound is None else bound, i))
    alike: dict[tuple[float, ...], list[int]] = {}
    for group, members in enumerate(buckets):
        members.sort()
        alike.setdefault(tuple(bound for bound, _ in members), []).append(group)
    layouts = [
        _Layout(
            np.array(shape),
            np.array(groups, dtype=np.int64),
            np.array([[column for _, column in buckets[g]] for g in groups], dtype=np.int64),
        )
        for shape, groups in alike.items()
    ]
    unnamed = [Metric("", labels) for _, labels in (keys[f] for f in firsts)]
    return _Histograms(Frame(unnamed, frame.passing), layouts)


def histogram_quantile(quantiles: Floats, buckets: Columns) -> Columns:
    """[T] quantiles of every histogram among the buckets. The result may hold twins: the caller checks."""
    found = buckets.frame.derive("histograms", lambda: _arrange(buckets.frame))
    steps = buckets.steps
    values = np.full((steps, len(found.frame)), np.nan)
    present = np.zeros(values.shape, dtype=np.bool_)
    mask = buckets.present
    for layout in found.layouts:
        counts = buckets.values[:, layout.columns]
        there = None if mask is None else mask[:, layout.columns]
        regular = len(np.unique(layout.bounds)) == len(layout.bounds) and (there is None or bool(there.all()))
        if regular:
            values[:, layout.members] = _regular(quantiles, layout.bounds, counts)
            present[:, layout.members] = True
            continue
        for t in range(steps):
            for h, group in enumerate(layout.members.tolist()):
                chosen = slice(None) if there is None else there[t, h]
                bounds = layout.bounds[chosen]
                if len(bounds):
                    values[t, group] = bucket_quantile(float(quantiles[t]), bounds, counts[t, h][chosen])
                    present[t, group] = True
    return Columns(found.frame, values, None if present.all() else present)


def _regular(quantiles: Floats, bounds: Floats, counts: Floats) -> Floats:
    """[T, H] quantiles for [T, H, B] counts under distinct ascending bounds, every bucket there."""
    steps, histograms, width = counts.shape
    if width < 2 or not math.isinf(bounds[-1]) or bounds[-1] < 0:
        result = np.full((steps, histograms), np.nan)
    else:
        rising = np.maximum.accumulate(counts, axis=2)
        total = rising[:, :, -1]
        rank = quantiles[:, None] * total
        # the first bucket that reaches the rank, the last one at most
        bucket = (rising[:, :, :-1] < rank[:, :, None]).sum(axis=2)
        last = bucket == width - 1
        inner = np.minimum(bucket, width - 2)
        end = bounds[inner]
        count = np.take_along_axis(rising, inner[:, :, None], axis=2)[:, :, 0]
        previous = np.maximum(inner - 1, 0)
        later = inner > 0
        begin = np.where(later, bounds[previous], 0.0)
        below = np.where(later, np.take_along_axis(rising, previous[:, :, None], axis=2)[:, :, 0], 0.0)
        result = begin + (end - begin) * ((rank - below) / (count - below))
        result = np.where((inner == 0) & (bounds[0] <= 0), bounds[0], result)
        result = np.where(last, bounds[-2], result)
        result = np.where((total == 0) | np.isnan(total), np.nan, result)
    invalid = np.isnan(quantiles)
    outside = np.where(quantiles < 0, -np.inf, np.where(quantiles > 1, np.inf, np.nan))
    use = invalid | (quantiles < 0) | (quantiles > 1)
    return np.where(use[:, None], outside[:, None], result)


def bucket_quantile(quantile: float, bounds: Floats, counts: Floats) -> float:
    """One histogram, bounds ascending, equal bounds next to each other."""
    if math.isnan(quantile):
        return math.nan
    if quantile < 0 or quantile > 1:
        return -math.inf if quantile < 0 else math.inf
    if bounds[-1] != math.inf:
        return math.nan
    distinct, where = np.unique(bounds, return_inverse=True)
    merged = np.bincount(where, weights=counts, minlength=len(distinct)).astype(np.float64)
    one = _regular(np.array([quantile]), distinct, merged[None, None, :])
    return float(one[0, 0])
