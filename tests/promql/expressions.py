"""Expressions and series, drawn for comparison with a real Prometheus."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from posttrain_watchdog.model import Metric
from posttrain_watchdog.series.store import STALE

START = 1_700_000_000 - 1_700_000_000 % 7200
LENGTH = 2400.0
"""seconds of samples from START on"""
GAUGES = ("g", "h")
COUNTERS = ("c_total",)


def series(seed: int, markers: bool = False) -> list[tuple[Metric, list[float], list[float]]]:
    """Gauges, counters with resets and a histogram; gaps, odd intervals, NaN and infinities among them.

    Values are eighths, so that sums are exact in whatever order they are made. With `markers`, gaps begin with a
    staleness marker.
    """
    draw = random.Random(seed)
    found = []

    def times(step: float) -> list[float]:
        kept = []
        t = START + draw.randrange(0, 30_000) / 1000
        gap_until = 0.0
        while t < START + LENGTH:
            if draw.random() < 0.01:
                gap_until = t + draw.choice([40, 200, 500])
            if t >= gap_until:
                kept.append(round(t, 3))
            t += step + draw.choice([0, 0, 0, 0.001, -0.003])
        return kept

    for name in GAUGES:
        for a in ("x", "y", "z"):
            for b in ("1", "2") if name == "g" else ("1",):
                when = times(draw.choice([5, 15, 15, 30]))
                special = a == "z"
                values = [
                    draw.choice([float("nan"), float("inf"), float("-inf"), 0.0])
                    if special and draw.random() < 0.1
                    else draw.randrange(-400, 800) / 8
                    for _ in when
                ]
                found.append((Metric(name, {"a": a, "b": b}), when, values))
    for a in ("x", "y"):
        for b in ("1", "2"):
            when = times(15)
            total, values = 0.0, []
            for _ in when:
                total = 0.0 if draw.random() < 0.03 else total + draw.randrange(0, 40) / 8
                values.append(total)
            found.append((Metric("c_total", {"a": a, "b": b}), when, values))
    for a in ("x", "y"):
        when = times(15)
        counts = [0.0] * 4
        columns: list[list[float]] = [[] for _ in counts]
        for _ in when:
            for i in range(draw.randrange(4), 4):
                counts[i] += draw.randrange(0, 3)
            for i in range(1, 4):
                counts[i] = max(counts[i], counts[i - 1])
            for column, count in zip(columns, counts, strict=True):
                column.append(count)
        for bound, column in zip(("0.5", "1", "2.5", "+Inf"), columns, strict=True):
            found.append((Metric("d_bucket", {"a": a, "le": bound}), when, column))
    return [(metric, *with_markers(times, values)) for metric, times, values in found] if markers else found


def with_markers(times: list[float], values: list[float]) -> tuple[list[float], list[float]]:
    """A staleness marker a second after the last sample before each gap, and at the end."""
    points = list(zip(times, values, strict=True))
    for before, after in zip(times, [*times[1:], float("inf")], strict=True):
        if after - before > 35:
            points.append((before + 1, STALE))
    points.sort(key=lambda point: point[0])
    return [t for t, _ in points], [v for _, v in points]


_matchers = st.sampled_from(
    [
        "",
        "",
        "",
        '{a="x"}',
        '{a!="x"}',
        '{a=~"x|y"}',
        '{a!~"y.*",b="1"}',
        '{b=""}',
        '{nope!="1"}',
        '{a=~".+",b=~"[12]"}',
    ]
)
_duration = st.sampled_from(["1s", "14s", "30s", "45s", "1m", "1m15s", "5m", "10m", "1500ms"])
_when = st.one_of(
    st.just(""),
    st.just(""),
    st.just(""),
    _duration.map(lambda d: f" offset {d}"),
    _duration.map(lambda d: f" offset -{d}"),
    st.integers(0, int(LENGTH)).map(lambda s: f" @ {START + s}.5"),
    st.sampled_from([" @ start()", " @ end()", " @ end() offset 20s"]),
)
_names = st.sampled_from([*GAUGES, *COUNTERS, "nothing", "d_bucket", "g"])
_selector = st.tuples(_names, _matchers, _when).map("".join)
_gauge = st.tuples(st.sampled_from(GAUGES), _matchers, _when).map("".join)
_numbers = st.sampled_from(["0", "1", "2", "-1", "0.5", "3.25", "100", "NaN", "Inf", "1e3", "-0.125"])
_grouping = st.sampled_from(["", "", " by (a)", " by (b)", " by (a, b)", " without (a)", " without (le)", " by ()"])

SIMPLE = ["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"]
RANGE_FUNCTIONS = """
    sum_over_time avg_over_time min_over_time max_over_time count_over_time last_over_time present_over_time
    stddev_over_time stdvar_over_time rate increase delta irate idelta deriv changes resets absent_over_time
""".split()  # noqa: SIM905
PLAIN = """
    abs ceil floor sgn sqrt exp ln log2 log10 round timestamp sort sort_desc absent sin cos atan sinh tanh asinh deg rad
""".split()  # noqa: SIM905


CALENDAR = ["minute", "hour", "day_of_week", "day_of_month", "days_in_month", "month", "year", "day_of_year"]


def _ranges(vectors: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    plain = st.tuples(_names, _matchers, _duration, _when).map(lambda p: f"{p[0]}{p[1]}[{p[2]}]{p[3]}")
    step = st.sampled_from(["", "10s", "15s", "7s"])
    sub = st.tuples(vectors, _duration, step, _when).map(lambda p: f"({p[0]})[{p[1]}:{p[2]}]{p[3]}")
    return st.one_of(plain, plain, plain, sub)


def _wider(vectors: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    ranges = _ranges(vectors)
    scalars = st.one_of(_numbers, vectors.map(lambda v: f"scalar({v})"), st.just("time()"))
    over = st.tuples(st.sampled_from(RANGE_FUNCTIONS), ranges).map(lambda p: f"{p[0]}({p[1]})")
    quantile_over = st.tuples(scalars, ranges).map(lambda p: f"quantile_over_time({p[0]}, {p[1]})")
    predict = st.tuples(ranges, scalars).map(lambda p: f"predict_linear({p[0]}, {p[1]})")
    smooth = ranges.map(lambda r: f"holt_winters({r}, 0.5, 0.25)")
    plain = st.tuples(st.sampled_from(PLAIN), vectors).map(lambda p: f"{p[0]}({p[1]})")
    # of NaN and infinities Prometheus makes a date that depends on the processor
    calendar = st.tuples(st.sampled_from(CALENDAR), vectors).map(lambda p: f"{p[0]}(({p[1]}) * 12345 < 1e11 > -1e10)")
    clamp = st.tuples(vectors, scalars, scalars).map(lambda p: f"clamp({p[0]}, {p[1]}, {p[2]})")
    simple = st.tuples(st.sampled_from(SIMPLE), _grouping, vectors).map(lambda p: f"{p[0]}{p[1]} ({p[2]})")
    # of equals, topk may keep either; and a label made of a value shows its last digit: so both read samples
    kept = st.tuples(st.sampled_from(["topk", "bottomk"]), _grouping, st.sampled_from(["1", "2", "3.5", "-1"]), _gauge)
    ranked = st.one_of(kept, st.tuples(st.just("quantile"), _grouping, _numbers, vectors)).map(
        lambda p: f"{p[0]}{p[1]} ({p[2]}, {p[3]})"
    )
    counted = st.tuples(_grouping, _selector).map(lambda p: f'count_values{p[0]} ("b", {p[1]})')
    matching = st.sampled_from(
        [
            "",
            "",
            "",
            "on(a)",
            "on(a, b)",
            "ignoring(b)",
            "on()",
            "on(a) group_left()",
            "ignoring(b) group_right()",
            "on(a) group_left(b)",
            "on(b) group_right(a)",
            "ignoring(le) group_left()",
        ]
    )
    arithmetic = st.sampled_from(["+", "-", "*", "/", "%", "^", "atan2", "==", "!=", ">", "<", ">=", "<=",
                                  "== bool", "> bool", "<= bool"])  # fmt: skip
    binary = st.tuples(vectors, arithmetic, matching, vectors).map(lambda p: f"({p[0]}) {p[1]} {p[2]} ({p[3]})")
    sets = st.tuples(
        vectors,
        st.sampled_from(["and", "or", "unless"]),
        st.sampled_from(["", "", "on(a)", "ignoring(b)", "on()"]),
        vectors,
    ).map(lambda p: f"({p[0]}) {p[1]} {p[2]} ({p[3]})")
    with_scalar = st.tuples(vectors, arithmetic, scalars).map(lambda p: f"({p[0]}) {p[1]} ({p[2]})")
    from_scalar = st.tuples(scalars, arithmetic, vectors).map(lambda p: f"({p[0]}) {p[1]} ({p[2]})")
    negated = vectors.map(lambda v: f"-({v})")
    histogram = st.tuples(
        scalars,
        st.one_of(
            st.just("d_bucket"),
            _duration.map(lambda d: f"rate(d_bucket[{d}])"),
            _duration.map(lambda d: f"sum by (le) (increase(d_bucket[{d}]))"),
            vectors,
        ),
    ).map(lambda p: f"histogram_quantile({p[0]}, {p[1]})")
    replaced = st.tuples(
        vectors,
        st.sampled_from(
            [
                '"b", "$1-$2", "a", "(x)(.*)"',
                '"b", "${1}1", "a", "(.).*"',
                '"a", "", "b", "1"',
                '"n", "$1x", "a", "(.*)"',
            ]
        ),
    ).map(lambda p: f"label_replace({p[0]}, {p[1]})")
    joined = vectors.map(lambda v: f'label_join({v}, "b", "-", "a", "b", "le")')
    vectored = scalars.map(lambda s: f"vector({s})")
    return st.one_of(
        over, over, over, quantile_over, predict, smooth, plain, calendar, clamp, simple, simple, ranked, counted,
        binary, binary, sets, with_scalar, from_scalar, negated, histogram, replaced, joined, vectored,
    )  # fmt: skip


expressions = st.recursive(_selector, _wider, max_leaves=4)
times = st.integers(-60, int(LENGTH) + 400).map(lambda s: START + s) | st.integers(0, int(LENGTH) * 1000).map(
    lambda ms: START + ms / 1000
)
