"""Reads every GPU once per line asked for, in a process of its own: `python -m ...nvml_probe` speaks JSON lines.

Promises: a call that the driver does not support is asked once and left out; an error of one GPU never hides
another; handles are kept. Never decides anything: what readings mean is the parent's business.

The parent (nvml.py) kills this process when the driver hangs, which no thread could survive.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import orjson

Readings = list[tuple[str, dict[str, str], float]]
"""(short name in vocabulary.gpu, labels, value)"""

_THROTTLE = {
    0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake",
    0x200: "board_limit", 0x400: "reliability",
}  # fmt: skip
"""Bits of nvmlClocksEventReasons that hold clocks down (nvml.h); idling and user settings are no throttling."""

_FI_MEMORY_TEMP = 82
_FI_NVLINK_ERRORS = {38: "crc_flit", 45: "crc_data", 52: "replay", 59: "recovery"}
_FI_NVLINK_BYTES = {138: "transmit", 139: "receive"}
_VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Fields of nvmlValue_t in the order of nvmlValueType_t."""
_EVENTS_AT_ONCE = 64


def _utilization(nvml: Any, handle: Any) -> Readings:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return [("utilization_ratio", {}, rates.gpu / 100), ("memory_utilization_ratio", {}, rates.memory / 100)]


def _memory(nvml: Any, handle: Any) -> Readings:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    found: Readings = [
        ("memory_used_bytes", {}, memory.used),
        ("memory_free_bytes", {}, memory.free),
        ("memory_total_bytes", {}, memory.total),
    ]
    if memory.total:
        found.append(("memory_reserve_ratio", {}, memory.free / memory.total))
    return found


def _processes(nvml: Any, handle: Any) -> Readings:
    running = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    return [
        ("process_memory_bytes", {"pid": str(p.pid)}, p.usedGpuMemory) for p in running if p.usedGpuMemory is not None
    ]


def _power(nvml: Any, handle: Any) -> Readings:
    return [("power_watts", {}, nvml.nvmlDeviceGetPowerUsage(handle) / 1000)]


def _power_limit(nvml: Any, handle: Any) -> Readings:
    return [("power_limit_watts", {}, nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000)]


def _temperature(nvml: Any, handle: Any) -> Readings:
    return [
        ("temperature_celsius", {"sensor": "core"}, nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    ]


def _clocks(nvml: Any, handle: Any) -> Readings:
    domains = {"graphics": nvml.NVML_CLOCK_GRAPHICS, "sm": nvml.NVML_CLOCK_SM, "memory": nvml.NVML_CLOCK_MEM}
    return [
        ("clock_hertz", {"domain": d}, nvml.nvmlDeviceGetClockInfo(handle, kind) * 1e6) for d, kind in domains.items()
    ]


def _throttling(nvml: Any, handle: Any) -> Readings:
    bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return [("throttled", {"reason": reason}, float(bool(bits & bit))) for bit, reason in _THROTTLE.items()]


def _ecc(nvml: Any, handle: Any) -> Readings:
    kinds = {"corrected": nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, "uncorrected": nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED}
    lives = {"volatile": nvml.NVML_VOLATILE_ECC, "aggregate": nvml.NVML_AGGREGATE_ECC}
    return [
        ("ecc_errors_total", {"type": kind, "lifetime": life}, nvml.nvmlDeviceGetTotalEccErrors(handle, k, c))
        for kind, k in kinds.items()
        for life, c in lives.items()
    ]


def _remapped(nvml: Any, handle: Any) -> Readings:
    corrected, uncorrected, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    return [
        ("remapped_rows", {"cause": "corrected"}, corrected),
        ("remapped_rows", {"cause": "uncorrected"}, uncorrected),
        ("remap_pending", {}, pending),
        ("remap_failed", {}, failed),
    ]


def _retirement(nvml: Any, handle: Any) -> Readings:
    return [("pages_pending_retirement", {}, nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))]


def _pcie_replays(nvml: Any, handle: Any) -> Readings:
    return [("pcie_replays_total", {}, nvml.nvmlDeviceGetPcieReplayCounter(handle))]


def _pcie_throughput(nvml: Any, handle: Any) -> Readings:
    ways = {"transmit": nvml.NVML_PCIE_UTIL_TX_BYTES, "receive": nvml.NVML_PCIE_UTIL_RX_BYTES}
    return [
        ("pcie_bytes_per_second", {"direction": way}, nvml.nvmlDeviceGetPcieThroughput(handle, c) * 1024)
        for way, c in ways.items()
    ]


def _fields(nvml: Any, handle: Any) -> Readings:
    """Memory temperature and NVLink in one call, as dcgm-exporter reads them."""
    wanted = [_FI_MEMORY_TEMP, *_FI_NVLINK_ERRORS, *_FI_NVLINK_BYTES]
    found: Readings = []
    for field in nvml.nvmlDeviceGetFieldValues(handle, wanted):
        if field.nvmlReturn != nvml.NVML_SUCCESS or field.valueType >= len(_VALUE_FIELDS):
            continue
        value = float(getattr(field.value, _VALUE_FIELDS[field.valueType]))
        if field.fieldId == _FI_MEMORY_TEMP:
            found.append(("temperature_celsius", {"sensor": "memory"}, value))
        elif field.fieldId in _FI_NVLINK_ERRORS:
            found.append(("nvlink_errors_total", {"kind": _FI_NVLINK_ERRORS[field.fieldId]}, value))
        else:
            found.append(("nvlink_bytes_total", {"direction": _FI_NVLINK_BYTES[field.fieldId]}, value * 1024))
    return found


def _modes(nvml: Any, handle: Any) -> Readings:
    return [
        ("persistence_mode", {}, nvml.nvmlDeviceGetPersistenceMode(handle)),
        ("compute_mode", {}, nvml.nvmlDeviceGetComputeMode(handle)),
    ]


def _mig(nvml: Any, handle: Any) -> Readings:
    return [("mig_mode", {}, nvml.nvmlDeviceGetMigMode(handle)[0])]


Probe = Callable[[Any, Any], Readings]
PROBES: tuple[Probe, ...] = (
    _utilization, _memory, _processes, _power, _power_limit, _temperature, _clocks, _throttling, _ecc, _remapped,
    _retirement, _pcie_replays, _pcie_throughput, _fields, _modes, _mig,
)  # fmt: skip
MIG_PROBES: tuple[Probe, ...] = (_memory, _processes, _utilization)


class Device:
    """One GPU with its handle and the calls that its driver answers."""

    def __init__(self, nvml: ModuleType, index: int) -> None:
        self._nvml: Any = nvml
        self.index = index
        self.handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        self.bus = _text(self._nvml.nvmlDeviceGetPciInfo_v3(self.handle).busId)
        self.uuid = _text(self._nvml.nvmlDeviceGetUUID(self.handle))
        self.name = _text(self._nvml.nvmlDeviceGetName(self.handle))
        self._unsupported: set[tuple[str, str]] = set()

    def read(self) -> dict[str, Any]:
        """{"gpu", "uuid", "name", "index", "lost", "readings", "errors"}."""
        readings: Readings = []
        errors: list[str] = []
        lost = self._ask(self.handle, "", PROBES, readings, errors)
        for mig, handle in self._instances() if not lost else ():
            mine: Readings = []
            self._ask(handle, mig, MIG_PROBES, mine, errors)
            readings += [(name, {**labels, "mig": mig}, value) for name, labels, value in mine]
        return {
            "gpu": self.bus,
            "uuid": self.uuid,
            "name": self.name,
            "index": self.index,
            "lost": lost,
            "readings": readings,
            "errors": errors,
        }

    def _ask(self, handle: Any, mig: str, probes: tuple[Probe, ...], into: Readings, errors: list[str]) -> bool:
        """Runs the probes that the driver answers; returns whether the GPU is lost."""
        nvml = self._nvml
        never = {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND, nvml.NVML_ERROR_INVALID_ARGUMENT}
        for probe in probes:
            if (mig, probe.__name__) in self._unsupported:
                continue
            try:
                into += probe(nvml, handle)
            except nvml.NVMLError as error:
                code = error.value  # the class is unhashable and its == looks at any value
                if code in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
                    errors.append(str(error))
                    return True
                if code in never:
                    self._unsupported.add((mig, probe.__name__))
                elif code != nvml.NVML_ERROR_NO_PERMISSION:
                    errors.append(f"{probe.__name__[1:]}: {error}")
        return False

    def _instances(self) -> Iterator[tuple[str, Any]]:
        nvml = self._nvml
        try:
            if not nvml.nvmlDeviceGetMigMode(self.handle)[0]:
                return
            most = nvml.nvmlDeviceGetMaxMigDeviceCount(self.handle)
        except nvml.NVMLError:
            return
        for i in range(most):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.handle, i)
                yield _text(nvml.nvmlDeviceGetUUID(handle)), handle
            except nvml.NVMLError:
                continue


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class Session:
    """One initialised NVML with its devices and its Xid events. Raises NVMLError where NVML cannot start."""

    def __init__(self, nvml: ModuleType) -> None:
        self._nvml: Any = nvml
        self._nvml.nvmlInit()
        self.driver = _text(self._nvml.nvmlSystemGetDriverVersion())
        self.devices: list[Device] = []
        self._unreachable: list[dict[str, Any]] = []
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                self.devices.append(Device(nvml, index))
            except self._nvml.NVMLError as error:
                self._unreachable.append({"index": index, "errors": [str(error)]})
        self._events = self._register()

    def read(self) -> dict[str, Any]:
        return {
            "driver": self.driver,
            "count": len(self.devices) + len(self._unreachable),
            "gpus": [device.read() for device in self.devices],
            "unreachable": self._unreachable,
            "xids": self._xids(),
        }

    def _register(self) -> Any:
        nvml = self._nvml
        try:
            events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return None
        for device in self.devices:
            try:
                nvml.nvmlDeviceRegisterEvents(device.handle, nvml.nvmlEventTypeXidCriticalError, events)
            except nvml.NVMLError:
                continue  # the driver has no Xid events for it; the kernel log still tells
        return events

    def _xids(self) -> list[dict[str, Any]]:
        nvml = self._nvml
        found: list[dict[str, Any]] = []
        while self._events is not None and len(found) < _EVENTS_AT_ONCE:
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                bus = _text(nvml.nvmlDeviceGetPciInfo_v3(event.device).busId)
            except nvml.NVMLError:
                break
            found.append({"gpu": bus, "xid": int(event.eventData)})
        return found


def main() -> None:
    """Answers each line on stdin with one JSON line; ends when stdin does."""
    import pynvml

    session: Session | None = None
    for _ in sys.stdin.buffer:
        try:
            session = session or Session(pynvml)
            answer: dict[str, Any] = session.read()
        except pynvml.NVMLError as error:
            answer, session = {"error": str(error), "code": int(error.value)}, None
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
