"""Host memory from /proc and from exported tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from incidents.course import drive
from incidents.logs import read as read_log

from posttrain_watchdog.model import Metric
from posttrain_watchdog.sources.host import memory
from posttrain_watchdog.sources.host.memory_table import Dialect, recognises

GIB = 2.0**30


def test_used_memory_leaves_out_caches(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  1024 kB\nMemFree: 100 kB\nMemAvailable:  600 kB\nShmem: 8 kB\nHugePages_Total: 0\n")
    row = memory.read(5.0, meminfo)
    assert row is not None
    assert row.time == 5.0
    assert row.values[Metric("posttrain_host_memory_used_bytes")] == 424 * 1024
    assert memory.read(5.0, tmp_path / "absent") is None
    meminfo.write_text("nothing\n")
    assert memory.read(5.0, meminfo) is None


def test_columns_are_known_by_their_names() -> None:
    table = Dialect()
    assert list(table.feed("worker_rss_gib;time_min;host_mem_total_gib;host_mem_used_mib;gpu_mem_used_gib")) == []
    (row,) = table.feed("17.5;15;1024;512;70")
    assert row.time == 900.0
    assert row.values == {
        Metric("posttrain_process_resident_bytes", {"role": "worker"}): 17.5 * GIB,
        Metric("posttrain_host_memory_total_bytes"): 1024 * GIB,
        Metric("posttrain_host_memory_used_bytes"): 0.5 * GIB,
    }
    assert list(table.feed("broken;line")) == []
    assert list(table.feed("a;b;c;d;e")) == []


def test_times_of_day() -> None:
    table = Dialect()
    list(table.feed("timestamp,memory_used_bytes"))
    (row,) = table.feed("2026-01-01T00:00:10Z,5")
    assert row.time == 1767225610.0


PROSE = (
    "iteration 5/100 | elapsed time per iteration (ms): 3.2 | memory used (GB): 50.1 |",
    "time 3, memory_used_gb 5, loss 0.1",
    "timestamp=5, host_mem_used_gib=3",
    "Time to load took long, the memory used was large",
)


@pytest.mark.parametrize(
    "line", ["step,loss", "", "time,loss", "host_mem_used_gib,loss", "1,2,3", "{'time': 1, 'memory_gb': 2}", *PROSE]
)
def test_other_tables_are_not_taken(line: str) -> None:
    assert not recognises(line)


def test_a_leak_is_seen_hours_before_the_kill(cases: Path) -> None:
    case = cases / "O08-host-memory-leak"
    table = Dialect()
    rows = [row for line in (case / "host.csv").read_text().splitlines() for row in table.feed(line)]
    assert len(rows) == 40
    half = [row for row in rows if (row.time or 0) <= 240 * 60]
    leak = drive(half)[1]["host_memory_leak"]
    assert leak.confidence >= 0.5
    assert float(str(leak.evidence["slope"]).split()[0]) == pytest.approx(76.8, rel=0.03)
    assert "worker" in str(leak.evidence["process"])
    events = read_log(case / "ray.log")
    assert drive([*rows, *events])[1]["host_memory_leak"].confidence > 0.95
