"""Live series as Prometheus text or OpenMetrics, through prometheus_client's own encoders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from posttrain_watchdog.model import Metric
from posttrain_watchdog.vocabulary import METRICS, Spec

_HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")
Snapshot = tuple[Sequence[Metric], Sequence[float]]


def _family_name(name: str) -> tuple[str, str]:
    """(family, type) of a written sample name."""
    spec = METRICS.get(name)
    if spec is not None:
        return (name.removesuffix("_total"), "counter") if spec.kind == "counter" else (name, "gauge")
    for part in _HISTOGRAM_PARTS:
        base = name.removesuffix(part)
        if base != name and base in METRICS and METRICS[base].kind == "histogram":
            return base, "histogram"
    return name, "gauge"


def _help(family: str, name: str) -> str:
    spec: Spec | None = METRICS.get(name) or METRICS.get(family)
    if spec is not None:
        return spec.help
    for stat in ("min", "max", "mean"):
        base = METRICS.get(name.removesuffix(f"_window_{stat}"))
        if base is not None:
            return f"{stat} over the last `window` steps: {base.help}"
    return "recorded by a rule"


class _LiveCollector(Collector):
    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Family]:
        families: dict[str, Family] = {}
        for metrics, values in self._snapshots:
            for metric, value in zip(metrics, values, strict=True):
                name, kind = _family_name(metric.name)
                family = families.get(name)
                if family is None:
                    family = families[name] = Family(name, _help(name, metric.name), kind)
                family.add_sample(metric.name, dict(metric.labels), float(value))
        yield from families.values()


def exposition(snapshots: Iterable[Snapshot], accept: str) -> tuple[bytes, str]:
    """The body and content type for a scrape with this Accept header."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_LiveCollector(snapshots))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
