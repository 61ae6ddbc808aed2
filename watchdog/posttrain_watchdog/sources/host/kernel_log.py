"""The kernel's log: Xid, NVLink, the out-of-memory killer, machine checks, PCIe and disk errors, as Events.

Promises: reads /dev/kmsg where it may, else follows `journalctl -k -o json`; says once and in one sentence when it may
do neither. A sentence counts only behind the kernel's own prefix (`NVRM:`, `mce:`, ...) at the start of the message.
Never writes to the log, never blocks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson

from posttrain_watchdog.model import Event
from posttrain_watchdog.sources.host import xid

_HEAD = re.compile(
    r"^(?:<\d+>)?(?:\w{3} +\d+ [\d:]{8} \S+ |\d{4}-\d\d-\d\dT\S+ \S+ |\[\w{3} \w{3} +\d+ [\d:]{8} \d{4}\] )?"
    r"(?:kernel: )?"
    r"(?:\[ *\d+\.\d+\] ?)?"
)
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<gpu>[0-9a-fA-F:.]+)\): (?P<xid>\d+)(?:, pid=(?P<pid>[^,]+))?(?:, name=(?P<name>[^,]+))?"
    r"(?:, (?P<what>.*))?"
)
_LOST = re.compile(r"NVRM: (?:GPU at PCI:|GPU )(?P<gpu>[0-9a-fA-F:.]+?)[:.]? (?:GPU has fallen off the bus|.*is lost)")
_NVLINK = re.compile(
    r"(?:NVRM|nvidia-nvswitch\d*|nvidia-nvlink): (?P<what>.*\bNVLink\b.*(?:[Ee]rror|[Ff]atal|down).*|SXid .*)"
)
_KILLED = re.compile(
    r"(?:Memory cgroup out of memory|Out of memory): Kill(?:ed)? process (?P<pid>\d+) \((?P<name>[^)]*)\)"
    r"(?:.*?anon-rss:(?P<rss_kb>\d+)kB)?"
)
_OOM = re.compile(r"oom-kill:constraint=(?P<constraint>\w+).*?task=(?P<name>[^,]+),pid=(?P<pid>\d+)")
_MCE = re.compile(
    r"(?:mce: \[Hardware Error\]|\[Hardware Error\]|EDAC \w+: (?:\d+ )?(?:UE|CE)|Machine check events logged)"
)
_PCIE = re.compile(
    r"(?:pcieport|nvidia|mlx5_core|[\w-]+) (?P<device>[0-9a-fA-F:.]{7,}): (?:AER: |PCIe Bus Error: )(?P<what>.*)"
)
_DISK = re.compile(
    r"(?:blk_update_request: )?(?:I/O error, dev (?P<device>\w+)|Buffer I/O error on dev(?:ice)? (?P<device2>[\w-]+)"
    r"|EXT4-fs error \(device (?P<device3>[\w-]+)\)|XFS \((?P<device4>[\w-]+)\): .*(?:I/O [Ee]rror|shutting down)"
    r"|nvme (?P<device5>\w+): I/O .*timeout)"
)
_KINDS = (
    ("xid", _XID),
    ("gpu_lost", _LOST),
    ("nvlink_error", _NVLINK),
    ("host_oom", _KILLED),
    ("host_oom", _OOM),
    ("machine_check", _MCE),
    ("pcie_error", _PCIE),
    ("disk_error", _DISK),
)


def find(message: str, time: float | None = None) -> Event | None:
    """The event that a kernel message tells of, with or without dmesg's or syslog's prefix; None for ordinary ones.

    Labels: xid (gpu, xid, meaning, action, fault, pid, name), host_oom (pid, name, rss_kb), others what they name.
    """
    body = message[_HEAD.match(message).end() :]  # type: ignore[union-attr]  # the pattern matches the empty string
    for kind, regex in _KINDS:
        told = regex.match(body)
        if told is None:
            continue
        labels = {re.sub(r"\d$", "", k): v.strip(" '") for k, v in told.groupdict().items() if v}
        if kind == "xid":
            known = xid.of(int(labels["xid"]))
            labels |= {"meaning": known.meaning, "action": known.action, "fault": known.fault}
        if kind == "host_oom":
            labels["by"] = "kernel"
        if kind == "pcie_error" and "orrected" in body and "ncorrected" not in body:
            labels["severity"] = "corrected"
        return Event(kind, body.rstrip(), labels, time=time)
    return None


def read_kmsg(record: str, boot_time: float) -> Event | None:
    """One record of /dev/kmsg: `priority,sequence,microseconds since boot,flags;message`."""
    head, _, message = record.partition(";")
    parts = head.split(",")
    if len(parts) < 3 or not parts[2].isdigit():
        return None
    return find(message.split("\n", 1)[0], boot_time + int(parts[2]) / 1e6)


def read_journal(line: bytes) -> Event | None:
    """One line of `journalctl -k -o json`; None for what cannot be read."""
    try:
        entry = orjson.loads(line)
        message, stamp = entry["MESSAGE"], entry.get("__REALTIME_TIMESTAMP")
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if isinstance(message, list):  # journald gives bytes that are no UTF-8 as numbers
        message = bytes(b & 255 for b in message if isinstance(b, int)).decode("utf-8", "replace")
    return find(message, int(stamp) / 1e6 if stamp else None) if isinstance(message, str) else None


class KernelLog:
    """Follows the kernel's log of this machine. `problem` is None, or why nothing can be read, in one sentence."""

    def __init__(
        self, device: Path = Path("/dev/kmsg"), stat: Path = Path("/proc/stat"), journalctl: str | None = "journalctl"
    ) -> None:
        self.problem: str | None = None
        self._file = -1
        self._child: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._boot = _boot_time(stat)
        try:
            self._file = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._file, 0, os.SEEK_END)  # only what comes from now on
        except OSError as error:
            program = shutil.which(journalctl) if journalctl else None
            if program is None:
                self.problem = (
                    f"cannot read {device} ({error.strerror}) and there is no journalctl: no kernel errors seen"
                )
                return
            self._child = subprocess.Popen(
                [program, "-k", "-f", "-n", "0", "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            self._file = os.dup(self._child.stdout.fileno())  # type: ignore[union-attr]  # stdout is a pipe
            os.set_blocking(self._file, False)
            self._denied = f"cannot read {device} ({error.strerror}), and {program} -k ended: add the user to group adm"

    def poll(self) -> list[Event]:
        """What came since the last call. Empty where nothing can be read (see `problem`)."""
        events = [event for event in self._records() if event is not None]
        if self._child is not None and self._child.poll() is not None and self.problem is None:
            self.problem = self._denied
        return events

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._child is not None:
            if self._child.poll() is None:
                self._child.terminate()
            self._child.wait()
            if self._child.stdout is not None:
                self._child.stdout.close()

    def _records(self) -> Iterator[Event | None]:
        while self._file >= 0:
            try:
                data = os.read(self._file, 8192 if self._child is None else 65536)
            except BlockingIOError:
                return
            except BrokenPipeError:  # kmsg: records were overwritten before they were read; the next read goes on
                continue
            except OSError as error:
                self.problem = f"the kernel log became unreadable: {error.strerror}"
                return
            if not data:
                return
            if self._child is None:
                yield read_kmsg(data.decode("utf-8", "replace"), self._boot)  # one record a read
                continue
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                yield read_journal(line)


def _boot_time(stat: Path) -> float:
    try:
        for line in stat.read_text(encoding="ascii").splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    except (OSError, ValueError):
        pass
    return 0.0
