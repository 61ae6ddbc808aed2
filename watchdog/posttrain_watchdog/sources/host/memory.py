"""Memory of this host, from /proc/meminfo.

Promises: one row a call; used memory leaves out what the kernel would give back (caches). Never fails: where there is
no /proc/meminfo it gives nothing.
"""

from __future__ import annotations

from pathlib import Path

from posttrain_watchdog.model import Metric, Row

_USED = Metric("posttrain_host_memory_used_bytes")
_TOTAL = Metric("posttrain_host_memory_total_bytes")
_AVAILABLE = Metric("posttrain_host_memory_available_bytes")
_SHARED = Metric("posttrain_host_shared_memory_used_bytes")


def read(time: float, meminfo: Path = Path("/proc/meminfo")) -> Row | None:
    """The host's memory at `time` (seconds since the epoch); None where it cannot be read."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    kib = {
        parts[0].rstrip(":"): int(parts[1]) for line in lines if len(parts := line.split()) > 1 and parts[1].isdigit()
    }
    total, available = kib.get("MemTotal"), kib.get("MemAvailable")
    if total is None or available is None:
        return None
    values = {_USED: total - available, _TOTAL: total, _AVAILABLE: available, _SHARED: kib.get("Shmem", 0)}
    return Row({metric: value * 1024.0 for metric, value in values.items()}, None, time)
