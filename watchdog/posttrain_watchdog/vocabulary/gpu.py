"""GPUs, from NVML. `gpu` is the PCI bus id, which stays when another GPU is lost and indices shift.

Names and units follow Prometheus' conventions; the help text names dcgm-exporter's field where there is one.
"""

from __future__ import annotations

from posttrain_watchdog.vocabulary.spec import Spec

PREFIX = "posttrain_gpu_"
_GPU = ("gpu", "mig")


def _gauge(short: str, text: str, unit: str = "", labels: tuple[str, ...] = ()) -> Spec:
    return Spec(PREFIX + short, text, unit, labels=(*_GPU, *labels))


def _counter(short: str, text: str, unit: str = "", labels: tuple[str, ...] = ()) -> Spec:
    return Spec(PREFIX + short, text, unit, "counter", (*_GPU, *labels))


METRICS: tuple[Spec, ...] = (
    _gauge("info", "1; name, uuid, index and driver are labels", labels=("name", "uuid", "index", "driver")),
    _gauge("up", "1 while the GPU answers, 0 once it is lost"),
    _gauge("last_collect_success", "1 if every call that the driver supports worked in the last poll"),
    _gauge("utilization_ratio", "Share of time with a kernel running (DCGM_FI_DEV_GPU_UTIL)"),
    _gauge("memory_utilization_ratio", "Share of time with memory being read or written (DCGM_FI_DEV_MEM_COPY_UTIL)"),
    _gauge("memory_used_bytes", "Memory in use (DCGM_FI_DEV_FB_USED)", "bytes"),
    _gauge("memory_free_bytes", "Memory free (DCGM_FI_DEV_FB_FREE)", "bytes"),
    _gauge("memory_total_bytes", "Memory in all (DCGM_FI_DEV_FB_TOTAL)", "bytes"),
    _gauge("memory_reserve_ratio", "Free share of the memory; the guide wants 0.2 left for calibration work"),
    _gauge("process_memory_bytes", "Memory held by a process", "bytes", ("pid", "role")),
    _gauge("power_watts", "Power drawn (DCGM_FI_DEV_POWER_USAGE)", "watts"),
    _gauge("power_limit_watts", "Enforced power limit (DCGM_FI_DEV_POWER_MGMT_LIMIT)", "watts"),
    _gauge(
        "temperature_celsius", "Temperature (DCGM_FI_DEV_GPU_TEMP, DCGM_FI_DEV_MEMORY_TEMP)", "celsius", ("sensor",)
    ),
    _gauge("clock_hertz", "Clock (DCGM_FI_DEV_SM_CLOCK, DCGM_FI_DEV_MEM_CLOCK)", "hertz", ("domain",)),
    _gauge(
        "throttled", "1 while clocks are held down for the reason (DCGM_FI_DEV_CLOCK_THROTTLE_REASONS)", "", ("reason",)
    ),
    _counter("ecc_errors_total", "ECC errors (DCGM_FI_DEV_ECC_*)", "", ("type", "lifetime")),
    _gauge("remapped_rows", "Memory rows remapped (DCGM_FI_DEV_*_REMAPPED_ROWS)", "", ("cause",)),
    _gauge("remap_pending", "1 while a row remapping waits for a reset"),
    _gauge("remap_failed", "1 once a row could not be remapped (DCGM_FI_DEV_ROW_REMAP_FAILURE)"),
    _gauge("pages_pending_retirement", "1 while memory pages wait to be retired (DCGM_FI_DEV_RETIRED_PENDING)"),
    _counter("pcie_replays_total", "PCIe replays (DCGM_FI_DEV_PCIE_REPLAY_COUNTER)"),
    _gauge("pcie_bytes_per_second", "PCIe throughput (DCGM_FI_PROF_PCIE_*_BYTES)", "bytes", ("direction",)),
    _counter(
        "nvlink_errors_total", "NVLink errors of all links (DCGM_FI_DEV_NVLINK_*_ERROR_COUNT_TOTAL)", "", ("kind",)
    ),
    _counter("nvlink_bytes_total", "NVLink payload (DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL)", "bytes", ("direction",)),
    _counter("xid_total", "Xid errors since the daemon began, by code (DCGM_FI_DEV_XID_ERRORS)", "", ("xid",)),
    _gauge("xid_timestamp_seconds", "When the last Xid of that code came", "seconds", ("xid",)),
    _gauge("persistence_mode", "1 if persistence mode is on"),
    _gauge("compute_mode", "NVML's compute mode: 0 default, 2 prohibited, 3 exclusive process"),
    _gauge("mig_mode", "1 if the GPU is split into MIG instances"),
    Spec(PREFIX + "devices", "GPUs that the driver enumerates now (DCGM_FI_DEV_COUNT)"),
)
