"""Every metric name once: help text, unit, type, labels; every cause; every kind of event.

One file a chapter. A metric that is not here is not exposed, and rules and dashboards may name only what is.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from posttrain_watchdog.vocabulary import consistency, daemon, engine, gpu, host, run, samples, trainer
from posttrain_watchdog.vocabulary.causes import CAUSES, RUN_CAUSES, TOKEN_CAUSES
from posttrain_watchdog.vocabulary.run import EVENTS
from posttrain_watchdog.vocabulary.spec import Kind, Spec

__all__ = [
    "CAUSES",
    "EVENTS",
    "METRICS",
    "RUN_CAUSES",
    "TOKEN_CAUSES",
    "WINDOWS",
    "Kind",
    "Spec",
    "window_specs",
]

WINDOWS = (20, 100)
"""Steps over which windowed metrics are kept."""

METRICS: Mapping[str, Spec] = MappingProxyType(
    {s.name: s for chapter in (trainer, samples, consistency, run, engine, gpu, host, daemon) for s in chapter.METRICS}
)


def window_specs(spec: Spec) -> tuple[Spec, ...]:
    """The specs of the step windows of a windowed metric; empty for others."""
    if not spec.windowed:
        return ()
    labels = (*spec.labels, "window")
    return tuple(
        Spec(
            f"{spec.name}_window_{stat}",
            f"{stat} over the last `window` steps: {spec.help}",
            spec.unit,
            labels=labels,
        )
        for stat in ("min", "max", "mean")
    )
