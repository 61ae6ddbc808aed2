"""The store beside a plain dictionary, under whatever order of writes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain_watchdog.model import Metric
from posttrain_watchdog.series.matchers import Matcher
from posttrain_watchdog.series.store import ABSENT_BITS, STALE_BITS, Store, StoreSettings

METRICS = [Metric(name, {"i": str(i)}) for name in ("a", "b") for i in range(6)]
STALE = "stale"
writes = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 1, 1, 1, 1, 40]),
        st.sampled_from([None, None, "w", "w", "v"]),
        st.lists(st.sampled_from(METRICS), unique=True, max_size=8),
    ),
    max_size=160,
)


def history(store: Store, metric: Metric) -> dict[int, float | str]:
    slot = store.index.slot(metric)
    if slot is None:
        return {}
    column = store.rows(0, len(store.ticks), np.array([slot]))[:, 0]
    found: dict[int, float | str] = {}
    for tick, bits, value in zip(store.ticks.tolist(), column.view(np.int64).tolist(), column.tolist(), strict=True):
        if bits != ABSENT_BITS:
            found[tick // 1000] = STALE if bits == STALE_BITS else value
    return found


@settings(derandomize=True, deadline=None, max_examples=60)
@given(writes=writes, max_series=st.sampled_from([4, 8, 100]), retention=st.sampled_from([70.0, 1e6]))
def test_what_is_kept_is_what_was_written(
    writes: list[tuple[int, str | None, list[Metric]]], max_series: int, retention: float
) -> None:
    store = Store(StoreSettings(max_series=max_series, retention=retention))
    model: dict[Metric, dict[int, float | str]] = {}
    written: dict[str, list[Metric]] = {}
    now, value = 0, 0.0
    for passed, writer, metrics in writes:
        now += passed
        value += 1.0
        store.append(float(now), metrics, [value + METRICS.index(m) / 100 for m in metrics], writer=writer)
        for metric in metrics:
            model.setdefault(metric, {})[now] = value + METRICS.index(metric) / 100
        if writer is not None:
            for metric in written.get(writer, []):
                if metric not in metrics:
                    model[metric][now] = STALE
            written[writer] = metrics
        assert store.series <= max_series
    oldest = int(store.ticks[0]) // 1000 if len(store.ticks) else 0
    if max_series == 100:
        assert store.dropped_series == 0
    for metric in METRICS:
        found = history(store, metric)
        wanted = {tick: value for tick, value in model.get(metric, {}).items() if tick >= oldest}
        if max_series == 100:
            assert {t: v for t, v in found.items() if t >= oldest} == wanted
        else:
            # a series that was dropped has lost its past, but never has another's
            assert all(wanted.get(t, STALE) == v for t, v in found.items() if t >= oldest)
    for name in ("a", "b"):
        chosen = store.metrics(store.select([Matcher("__name__", "=", name), Matcher("i", "=~", "[0-3]")]))
        known = [m for m in METRICS if store.index.slot(m) is not None]
        assert sorted(map(repr, chosen)) == sorted(repr(m) for m in known if m.name == name and m.labels[0][1] < "4")
