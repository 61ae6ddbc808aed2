"""Host memory as monitoring exports it: a table with a header, a time column and columns of memory.

Promises: columns are known by the words and the unit in their names (`host_mem_used_gib`, `node_memory_used_bytes`,
`worker_rss_mb`), never by their place; a file without a time column and a memory column is not taken.
Never invents a total: where no column gives it there is none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime, timezone

from posttrain_watchdog.model import Metric, Row

_UNITS = {
    "b": 1.0, "bytes": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40,
}  # fmt: skip
_TIMES = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "ms": 1e-3, "min": 60.0, "mins": 60.0, "minutes": 60.0,
    "h": 3600.0, "hours": 3600.0, "time": 1.0, "timestamp": 1.0, "ts": 1.0, "epoch": 1.0,
}  # fmt: skip
_SEPARATORS = ",\t;|"
_NEEDED = ("mem", "Mem", "MEM", "rss", "RSS", "resident")
_LONGEST = 4000
_VALUE = re.compile(r"(?<![\w.])[-+]?\d")
"""A number of its own, as no column's name has one."""
_WORDS = re.compile(r"[a-z]+")


def recognises(line: str) -> bool:
    """Whether this is the header of such a table."""
    return _columns(line) is not None


class Dialect:
    """Reads the table line by line; a new header starts a new table."""

    def __init__(self) -> None:
        self._columns: dict[int, tuple[Metric, float]] = {}
        self._time = -1
        self._scale = 1.0
        self._separator = ","

    def feed(self, line: str) -> Iterable[Row]:
        """The row of one line; nothing for headers and for lines that are no numbers."""
        header = _columns(line)
        if header is not None:
            self._separator, self._time, self._scale, self._columns = header
            return ()
        cells = [cell.strip().strip('"') for cell in line.strip().split(self._separator)]
        if not self._columns or len(cells) <= max(self._time, *self._columns):
            return ()
        time = _when(cells[self._time], self._scale)
        values = {
            metric: number * factor
            for place, (metric, factor) in self._columns.items()
            if math.isfinite(number := _number(cells[place]))
        }
        return () if time is None or not values else (Row(values, None, time),)

    def close(self) -> Iterable[Row]:
        return ()


def _columns(line: str) -> tuple[str, int, float, dict[int, tuple[Metric, float]]] | None:
    # most lines of a log end here: a header names memory, and holds no values
    if len(line) > _LONGEST or not any(word in line for word in _NEEDED) or any(sign in line for sign in ":={[\x1b"):
        return None
    separator = next((s for s in _SEPARATORS if s in line), None)
    if separator is None or _VALUE.search(line):
        return None
    time, scale, memory = -1, 1.0, {}
    for place, cell in enumerate(line.strip().lower().split(separator)):
        words = _WORDS.findall(cell)
        if not words:
            return None
        factor = next((_UNITS[w] for w in reversed(words) if w in _UNITS), None)
        if time < 0 and any(w in ("time", "timestamp", "ts", "epoch", "elapsed", "date") for w in words):
            time, scale = place, next((_TIMES[w] for w in reversed(words) if w in _TIMES), 1.0)
        elif factor is not None and (metric := _metric(words)) is not None:
            memory[place] = (metric, factor)
    return (separator, time, scale, memory) if time >= 0 and memory else None


def _metric(words: list[str]) -> Metric | None:
    if "rss" in words or "resident" in words:
        return Metric("posttrain_process_resident_bytes", {"role": next((w for w in words if w in _ROLES), "worker")})
    if "gpu" in words or "cuda" in words or not any(w in ("mem", "memory", "ram") for w in words):
        return None
    kind = next((w for w in words if w in ("used", "total", "available", "free")), None)
    short = {"used": "used", "total": "total", "available": "available"}.get(kind or "")
    return Metric(f"posttrain_host_memory_{short}_bytes") if short else None


_ROLES = ("trainer", "engine", "worker", "actor", "rollout", "driver", "raylet")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _when(text: str, scale: float) -> float | None:
    number = _number(text)
    if math.isfinite(number):
        return number * scale
    try:
        told = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (told if told.tzinfo else told.replace(tzinfo=timezone.utc)).timestamp()
