"""The kernel's log as kmsg and journald give it."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from posttrain_watchdog.sources.host.kernel_log import KernelLog, find, read_journal, read_kmsg
from posttrain_watchdog.vocabulary import EVENTS

XID = "NVRM: Xid (PCI:0000:65:00): 31, pid='<unknown>', name=<unknown>, Ch 00000008, MMU Fault"
LINES = {
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=812, name=python, GPU has fallen off the bus.": "xid",
    XID: "xid",
    "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.": "gpu_lost",
    "Out of memory: Killed process 4121 (python) total-vm:9kB, anon-rss:104857600kB, file-rss:0kB": "host_oom",
    "Memory cgroup out of memory: Killed process 4121 (ray::Worker) total-vm:9kB, anon-rss:1kB": "host_oom",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=812,uid=0": "host_oom",
    "mce: [Hardware Error]: Machine check events logged": "machine_check",
    "pcieport 0000:80:01.1: AER: Uncorrected (Fatal) error received: 0000:81:00.0": "pcie_error",
    "I/O error, dev nvme0n1, sector 12345 op 0x0:(READ)": "disk_error",
    "EXT4-fs error (device sda1): ext4_find_entry:1455": "disk_error",
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 31 egress non-posted PRIV error": "nvlink_error",
}


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    "head", ["", "[  123.456789] ", "kernel: ", "<4>[12.3] ", "May  1 10:00:00 node1 kernel: [ 1.2] "]
)
def test_a_message_with_every_prefix(line: str, head: str) -> None:
    event = find(head + line)
    assert event is not None
    assert event.kind == LINES[line]
    assert event.kind in EVENTS


@pytest.mark.parametrize(
    "line", ["someone wrote NVRM: Xid (PCI:0000:3b:00): 79", "usb 1-1: new device", "NVRM: loading NVIDIA module", ""]
)
def test_ordinary_messages_are_none(line: str) -> None:
    assert find(line) is None


def test_the_number_behind_the_bus_id_is_the_xid_and_its_meaning_comes_along() -> None:
    event = find(XID)
    assert event is not None
    assert event.labels["xid"] == "31"
    assert event.labels["gpu"] == "0000:65:00"
    assert event.labels["fault"] == "no"
    assert "page fault" in event.labels["meaning"]


def test_kmsg_gives_microseconds_since_the_boot() -> None:
    event = read_kmsg(f"3,1234,5000000,-;{XID}\n SUBSYSTEM=pci", boot_time=1000.0)
    assert event is not None
    assert event.time == 1005.0
    assert read_kmsg("no record", 0.0) is None


def test_the_journal_gives_text_or_bytes() -> None:
    for message in (XID, list(XID.encode() + b"\xff")):
        event = read_journal(orjson.dumps({"MESSAGE": message, "__REALTIME_TIMESTAMP": "1700000000000000"}))
        assert event is not None
        assert event.labels["xid"] == "31"
        assert event.time == 1.7e9
    for broken in (b"", b"{", b"[]", b'{"MESSAGE": 3}', b'{"MESSAGE": null}'):
        assert read_journal(broken) is None


def test_permission_denied_is_one_sentence(tmp_path: Path) -> None:
    log = KernelLog(device=tmp_path / "absent", stat=tmp_path / "stat", journalctl=None)
    assert log.problem is not None
    assert "no kernel errors seen" in log.problem
    assert log.poll() == []
    log.close()


def test_only_what_comes_after_the_start_is_read(tmp_path: Path) -> None:
    device, stat = tmp_path / "kmsg", tmp_path / "stat"
    stat.write_text("cpu 1 2\nbtime 1700000000\n")
    device.write_text(f"3,1,1,-;{XID}\n")
    log = KernelLog(device=device, stat=stat)
    assert log.poll() == []
    with device.open("a") as out:
        out.write(f"3,2,2000000,-;{XID}\n")
    events = log.poll()
    assert [(e.kind, e.time) for e in events] == [("xid", 1700000002.0)]
    log.close()
    assert log.poll() == []


def test_a_journal_that_ends_is_said_once(tmp_path: Path) -> None:
    program = tmp_path / "journalctl"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    log = KernelLog(device=tmp_path / "absent", stat=tmp_path / "stat", journalctl=str(program))
    assert log._child is not None
    os.waitid(os.P_PID, log._child.pid, os.WEXITED | os.WNOWAIT)
    assert log.poll() == []
    assert log.problem is not None
    assert "adm" in log.problem
    log.close()
