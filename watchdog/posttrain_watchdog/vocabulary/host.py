"""This host: memory, kernel, processes."""

from __future__ import annotations

from posttrain_watchdog.vocabulary.spec import Spec

METRICS: tuple[Spec, ...] = (
    Spec("posttrain_host_memory_used_bytes", "Memory in use without caches (total - available)", "bytes"),
    Spec("posttrain_host_memory_total_bytes", "Memory in all", "bytes"),
    Spec("posttrain_host_memory_available_bytes", "Memory that programs can still get", "bytes"),
    Spec("posttrain_host_shared_memory_used_bytes", "Shared memory in use (object stores, /dev/shm)", "bytes"),
    Spec(
        "posttrain_process_resident_bytes", "Resident memory of a process of the run", "bytes", labels=("role", "pid")
    ),
)
