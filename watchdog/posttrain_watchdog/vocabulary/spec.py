"""What is known of a metric before it has a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, slots=True)
class Spec:
    """One metric name: its help text, unit, type and the labels it may carry (besides `run` and `source`)."""

    name: str
    help: str
    unit: str = ""
    """a base unit as Prometheus names them (seconds, bytes, celsius, watts) or tokens, nats; empty: dimensionless"""
    kind: Kind = "gauge"
    labels: tuple[str, ...] = ()
    windowed: bool = False
    """also kept over the last 20 and 100 steps as NAME_window_{min,max,mean}{window="20"}"""


def table(prefix: str, rows: tuple[tuple[str, str, str], ...], *, windowed: bool = False) -> tuple[Spec, ...]:
    """Specs of label-less gauges from (short name, unit, help) rows."""
    return tuple(Spec(prefix + short, text, unit, windowed=windowed) for short, unit, text in rows)
