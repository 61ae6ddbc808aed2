"""Hangs, stalls, memory, hardware, throughput: named from events and host figures, and silent where they explain."""

from __future__ import annotations

import numpy as np
import pytest
from incidents.course import drive, loud, row

from posttrain_watchdog.incidents.monitor import Monitor
from posttrain_watchdog.model import Event, Metric, Row
from posttrain_watchdog.sources.host.kernel_log import find

GIB = 2.0**30


def _steps(count: int, seconds: float = 60.0) -> list[Row]:
    return [row(s, seconds * s, loss=0.1) for s in range(1, count + 1)]


def _after(items: list[Row | Event], seconds: float) -> dict[str, float]:
    monitor = Monitor()
    for each in items:
        monitor.observe(each)
        monitor.tick(each.time or 0.0)
    last = max(i.time for i in items if i.time is not None)
    found = monitor.tick(last + seconds)
    assert not monitor.failed
    return {d.cause: d.confidence for d in found if d.confidence >= 0.5}


def test_no_step_for_far_longer_than_usual() -> None:
    assert _after([*_steps(20)], 500) == {}
    assert set(_after([*_steps(20)], 700)) == {"stalled"}
    monitor = Monitor()
    for each in _steps(20):
        monitor.observe(each)
        monitor.tick(each.time or 0.0)
    stalled = monitor.tick(1200 + 3000.0)[0]
    assert stalled.first_step == 20
    assert "kernel log" in str(stalled.evidence["not looked at"])
    assert "engine metrics" in str(stalled.evidence["not looked at"])


def test_a_log_without_times_is_paced_by_its_arrival() -> None:
    monitor = Monitor()
    for s in range(1, 12):
        monitor.observe(row(s, None, loss=0.1))
        monitor.tick(1000.0 + 40 * s)
    assert [d.cause for d in monitor.tick(1440.0 + 500)] == []
    assert [d.cause for d in monitor.tick(1440.0 + 700)] == ["stalled"]


def test_a_log_in_another_time_zone_does_not_look_stalled() -> None:
    monitor = Monitor()
    for s in range(1, 12):
        monitor.observe(row(s, 60.0 * s, loss=0.1))
        assert monitor.tick(60.0 * s + 8 * 3600) == []
    assert monitor.tick(660.0 + 8 * 3600 + 300) == []


@pytest.mark.parametrize("logged", [{"loss": 0.1}, {"step_seconds": 100.0}])
def test_a_trainer_that_logs_every_tenth_step_is_heard_that_often(logged: dict[str, float]) -> None:
    monitor = Monitor()
    for s in range(10, 120, 10):
        monitor.observe(row(s, 100.0 * s, **logged))
        assert monitor.tick(100.0 * s) == []
        assert monitor.tick(100.0 * s + 990) == []
    assert monitor.tick(11000.0 + 4000) == []
    assert [d.cause for d in monitor.tick(11000.0 + 6000)] == ["stalled"]


def test_slow_steps_have_a_longer_budget() -> None:
    assert _after([*_steps(10, 1800.0)], 5000) == {}
    assert set(_after([*_steps(10, 1800.0)], 10000)) == {"stalled"}


def test_a_run_that_ended_was_preempted_or_still_generates_does_not_stall() -> None:
    assert _after([*_steps(20), Event("run_finished", "done", {}, None, 1201.0)], 9000) == {}
    assert _after([*_steps(20), Event("preempted", "CANCELLED", {}, None, 1201.0)], 9000) == {}
    busy = Row({Metric("posttrain_engine_requests_running"): 32.0}, None, 1201.0)
    assert _after([*_steps(20), busy], 1000) == {}


def test_the_first_step_may_take_its_time() -> None:
    assert _after([Event("run_started", "***** Running training *****", {}, None, 0.0)], 9000) == {}


def test_a_stall_that_a_line_explains_is_left_to_its_cause() -> None:
    oom = Event("cuda_oom", "torch.OutOfMemoryError: CUDA out of memory.", {}, None, 1210.0)
    assert set(_after([*_steps(20), oom], 3000)) == {"gpu_out_of_memory"}


def test_a_weight_update_that_does_not_end() -> None:
    def sync(step: int, kind: str, late: float) -> Event:
        return Event(kind, "sync weights", {}, step, 60.0 * step + late)

    past = [
        e
        for s in range(1, 10)
        for e in (row(s, 60.0 * s, loss=0.1), sync(s, "weight_sync_started", 1), sync(s, "weights_synced", 5))
    ]
    stuck = [*past, row(10, 600.0, loss=0.1), sync(10, "weight_sync_started", 1)]
    assert _after(stuck, 60) == {}
    assert "weight_sync_stuck" in _after(stuck, 400)
    assert _after([*stuck, sync(10, "weights_synced", 100)], 400) == {}


def test_a_log_that_never_says_that_an_update_ended() -> None:
    items = [
        e
        for s in range(1, 10)
        for e in (row(s, 60.0 * s, loss=0.1), Event("weight_sync_started", "sync", {}, s, 60.0 * s + 1))
    ]
    assert _after([*items, row(10, 660.0, loss=0.1)], 500) == {}


def _host(minutes: int, per_hour: float, noise: float = 4.0, total: float = 1024.0, seed: int = 0) -> list[Row]:
    random = np.random.default_rng(seed)
    used, total_ = Metric("posttrain_host_memory_used_bytes"), Metric("posttrain_host_memory_total_bytes")
    return [
        Row({used: (200 + per_hour * m / 60 + random.normal() * noise) * GIB, total_: total * GIB}, None, 60.0 * m)
        for m in range(0, minutes, 15)
    ]


def test_host_memory_grows_towards_its_end() -> None:
    _, found, _ = drive(_host(300, 76.8))
    leak = found["host_memory_leak"]
    assert leak.confidence >= 0.9
    slope = float(str(leak.evidence["slope"]).split()[0])
    assert slope == pytest.approx(76.8, rel=0.05)
    assert "in " in str(leak.evidence["reaches 95 %"])


@pytest.mark.parametrize("seed", range(5))
def test_memory_that_fluctuates_or_grows_too_slowly_is_no_leak(seed: int) -> None:
    assert loud(drive(_host(900, 0.0, 20.0, seed=seed))[1]) == {}
    assert loud(drive(_host(900, 2.0, 2.0, seed=seed))[1]) == {}


def test_memory_that_settles_is_no_leak() -> None:
    rows = _host(900, 0.0, 2.0)
    for n, each in enumerate(rows):
        each.values[Metric("posttrain_host_memory_used_bytes")] += 300 * GIB * (1 - np.exp(-n / 8))
    assert loud(drive(rows)[1]) == {}


def test_xid_of_the_hardware_names_the_gpu_and_what_to_do() -> None:
    first = find("NVRM: Xid (PCI:0000:3b:00): 79, pid=812, name=python, GPU has fallen off the bus.", 100.0)
    then = find("NVRM: Xid (PCI:0000:5e:00): 45, pid=812, name=python, Ch 00000010", 101.0)
    assert first is not None
    assert then is not None
    _, found, _ = drive([row(5, 50.0, loss=0.1), first, then])
    fault = found["gpu_hardware_fault"]
    assert fault.confidence >= 0.9
    assert dict(fault.labels)["gpu"] == "0000:3b:00"
    assert "power-cycle" in fault.first_checks[1]
    assert fault.first_step == 5


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_xid_of_a_program_is_no_hardware_fault(code: int) -> None:
    event = find(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=1, name=python, Ch 1", 1.0)
    assert event is not None
    assert loud(drive([event])[1]) == {}


def test_counters_of_the_driver_speak_too() -> None:
    ecc = Metric("posttrain_gpu_ecc_errors_total", {"gpu": "0000:3b:00", "type": "uncorrected", "lifetime": "volatile"})
    _, found, _ = drive([Row({ecc: 0.0}, None, 1.0), Row({ecc: 2.0}, None, 2.0)])
    assert dict(found["gpu_hardware_fault"].labels)["gpu"] == "0000:3b:00"
    aggregate = Metric(
        "posttrain_gpu_ecc_errors_total", {"gpu": "0000:3b:00", "type": "uncorrected", "lifetime": "aggregate"}
    )
    assert drive([Row({aggregate: 7.0}, None, float(t)) for t in range(5)])[1] == {}


def _engine(rates: list[float], running: list[float]) -> list[Row]:
    rate, run = Metric("posttrain_engine_generation_tokens_per_second"), Metric("posttrain_engine_requests_running")
    return [Row({rate: r, run: n}, None, 7.0 * i) for i, (r, n) in enumerate(zip(rates, running, strict=True))]


def test_engine_slows_down_with_as_many_requests() -> None:
    rows = _engine([520, 514, 538, 525, 512, 501, 502, 515, 24, 22, 39, 36, 37, 38], [5.0] * 8 + [6.0] * 6)
    retraction = Event("kv_retraction", "KV cache pool is full. Retract requests.", {}, None, 55.0)
    _, found, _ = drive([*rows[:8], retraction, *rows[8:]])
    assert found["throughput_collapse"].confidence >= 0.9
    assert "514 -> 37" in str(found["throughput_collapse"].evidence["tokens per second"])


def test_the_tail_of_a_batch_is_no_collapse() -> None:
    rows = _engine([520.0] * 10 + [100, 80, 60, 40, 30, 20, 20, 20], [64.0] * 10 + [12, 10, 8, 5, 4, 2, 2, 2])
    assert loud(drive(rows)[1]) == {}


def test_the_trainer_slows_down() -> None:
    rows = [row(s, tokens_per_second=9000.0 + 100 * (s % 3) if s < 30 else 2000.0) for s in range(1, 45)]
    _, found, _ = drive(rows)
    assert found["throughput_collapse"].confidence >= 0.5
    assert abs((found["throughput_collapse"].first_step or 0) - 30) <= 2


def test_trackers_that_drop_metrics() -> None:
    dropped = [Event("metrics_dropped", "wandb: WARNING Step 5 < 10; dropping {}", {}, s) for s in range(5)]
    assert drive(dropped)[1]["metrics_dropped"].confidence > 0.9
    resumed = Event("resumed", "Resuming from checkpoint-10", {}, 10)
    assert loud(drive([resumed, dropped[0]])[1]) == {}
