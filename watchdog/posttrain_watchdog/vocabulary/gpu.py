"""GPUs, from NVML."""

from __future__ import annotations

from posttrain_watchdog.vocabulary.spec import Spec

METRICS: tuple[Spec, ...] = ()
