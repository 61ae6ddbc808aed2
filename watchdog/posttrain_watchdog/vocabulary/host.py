"""This host: memory, kernel, processes."""

from __future__ import annotations

from posttrain_watchdog.vocabulary.spec import Spec

METRICS: tuple[Spec, ...] = ()
