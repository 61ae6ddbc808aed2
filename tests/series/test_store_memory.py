"""The store's memory, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys

SIX_HOURS = """
import numpy as np
from posttrain_watchdog.model import Metric
from posttrain_watchdog.series.store import Store

store = Store()
metrics = [Metric("load", {"host": f"node{i // 8}", "rank": str(i % 8), "run": "one"}) for i in range(10_000)]
values = np.random.default_rng(0).random(10_000)
for tick in range(1_440):
    store.append(1e9 + 15 * tick, metrics, values + tick, writer="w")
assert store.series == 10_000 and len(store.ticks) == 1_440 and store.dropped_points == 0
# not ru_maxrss, which a child inherits from the process that forked it
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_ten_thousand_series_over_six_hours_stay_within_200_mib() -> None:
    done = subprocess.run([sys.executable, "-c", SIX_HOURS], check=True, capture_output=True, text=True)
    assert int(done.stdout) / 1024 < 200
