"""Statistics of the run's course that rules can fire on, as rows.

Promises: each is absent until it has a baseline to compare with. Never decides anything.
"""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.statistics import RECENT, STARTING, baseline
from posttrain_watchdog.model import Metric, Row

_RATIOS = {
    "entropy": Metric("posttrain_run_entropy_ratio_to_baseline"),
    "grad_norm": Metric("posttrain_run_grad_norm_ratio_to_baseline"),
    "completion_length_mean": Metric("posttrain_run_completion_length_ratio_to_baseline"),
    "step_seconds": Metric("posttrain_run_step_seconds_ratio_to_baseline"),
}
_TIMEOUT = Metric("posttrain_collective_timeout_seconds")


def rows_of(history: History) -> list[Row]:
    """One row with the ratios of recent medians to the run's own start; none while there is nothing to compare."""
    values: dict[Metric, float] = {}
    told = [int(e.labels["timeout_ms"]) for e in history.events("nccl_timeout") if "timeout_ms" in e.labels]
    if told:
        values[_TIMEOUT] = told[-1] / 1000
    for short, metric in _RATIOS.items():
        track = history.trainer(short)
        base = baseline(track)
        recent = np.abs(track.finite()[1][-RECENT:])
        if base is not None and base.middle > 0 and len(track.head) >= STARTING + 1:
            values[metric] = float(np.median(recent)) / base.middle
    return [Row(values, history.step)] if values else []
