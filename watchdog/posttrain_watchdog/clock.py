"""The one module that reads the clock; everything else takes the time as an argument."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns seconds since the Unix epoch."""


def now() -> float:
    """Seconds since the Unix epoch, as Prometheus stamps its samples."""
    return time.time()


def elapsed() -> float:
    """Monotonic seconds, for durations only: never stored, never compared between processes."""
    return time.monotonic()
