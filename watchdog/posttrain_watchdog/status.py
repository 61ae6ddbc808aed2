"""The program as the web room sees it: a View over the pipeline, its sources and its rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from posttrain_watchdog import __version__
from posttrain_watchdog.clock import Clock
from posttrain_watchdog.intake import Intake
from posttrain_watchdog.model import Metric
from posttrain_watchdog.pipeline import Pipeline
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.values import Matrix, Scalar, String, Value
from posttrain_watchdog.web.page import DRAWN
from posttrain_watchdog.web.view import QueryError, RunView, SourceView


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _labels(metric: Metric) -> dict[str, str]:
    name = {"__name__": metric.name} if metric.name else {}
    return {**name, **dict(metric.labels)}


def answer_of(value: Value) -> dict[str, Any]:
    """A query's value in the form of Prometheus' HTTP API."""
    if isinstance(value, Scalar):
        return {"resultType": "scalar", "result": [value.time, _number(value.value)]}
    if isinstance(value, String):
        return {"resultType": "string", "result": [value.time, value.value]}
    if isinstance(value, Matrix):
        series = [{"metric": _labels(m), "values": [[t, _number(v)] for t, v in points]} for m, points in value]
        return {"resultType": "matrix", "result": series}
    vector = [{"metric": _labels(m), "value": [value.time, _number(v)]} for m, v in value]
    return {"resultType": "vector", "result": vector}


class Status:
    """Implements web.view.View."""

    def __init__(
        self,
        pipeline: Pipeline,
        intakes: Mapping[str, Intake],
        now: Clock,
        reload: Callable[[], list[str]],
    ) -> None:
        self._pipeline = pipeline
        self._intakes = intakes
        self._now = now
        self._started = now()
        self._reload = reload

    def now(self) -> float:
        return self._now()

    def started(self) -> float:
        return self._started

    def version(self) -> str:
        return __version__

    def ready(self) -> bool:
        return self._pipeline.ticks > 0

    def snapshots(self) -> list[tuple[Sequence[Metric], Sequence[float]]]:
        return self._pipeline.snapshots()

    def alerts(self) -> list[dict[str, Any]]:
        return self._pipeline.evaluator.alerts_payload()

    def rules(self) -> dict[str, Any]:
        return self._pipeline.evaluator.rules_payload()

    def instant(self, expr: str, time: float) -> dict[str, Any]:
        try:
            return answer_of(self._pipeline.engine.instant(expr, time))
        except PromQLError as error:
            raise QueryError(str(error)) from None

    def range(self, expr: str, start: float, end: float, step: float) -> dict[str, Any]:
        try:
            return answer_of(self._pipeline.engine.range(expr, start, end, step))
        except PromQLError as error:
            raise QueryError(str(error)) from None

    def label_names(self) -> list[str]:
        names = {"__name__"}
        for metrics, _ in self.snapshots():
            names.update(name for metric in metrics for name, _ in metric.labels)
        return sorted(names)

    def label_values(self, name: str) -> list[str]:
        found: set[str] = set()
        for metrics, _ in self.snapshots():
            for metric in metrics:
                found.update([metric.name] if name == "__name__" else [v for k, v in metric.labels if k == name])
        return sorted(found)

    def runs(self) -> list[RunView]:
        views = []
        for name, run in self._pipeline.runs.items():
            figures = {m: v for m, _ in DRAWN if (v := run.live.value(Metric(m))) is not None}
            sources = [
                SourceView(str(s.path), s.label, not s.error, s.error, s.items)
                for s in (self._intakes[name].sources() if name in self._intakes else ())
            ]
            views.append(RunView(name, run.step, run.finished, run.diagnoses, sources, figures))
        return views

    def reload(self) -> list[str]:
        return self._reload()
