"""Statistics for rules: absent until there is a baseline, drained, and only names of the vocabulary."""

from __future__ import annotations

import pytest
from incidents.course import drive, healthy, row

from posttrain_watchdog.incidents.monitor import Monitor, judges
from posttrain_watchdog.model import Event, Metric
from posttrain_watchdog.vocabulary import METRICS, RUN_CAUSES, TOKEN_CAUSES

ENTROPY = Metric("posttrain_run_entropy_ratio_to_baseline")


def test_entropy_that_collapses_is_seen_in_its_ratio() -> None:
    monitor = Monitor()
    ratios = {}
    for s in range(1, 40):
        monitor.observe(row(s, entropy=2.0 if s < 20 else 0.001))
        monitor.tick(60.0 * s)
        for each in monitor.rows():
            assert each.step == s
            ratios[s] = each.values[ENTROPY]
        assert monitor.rows() == []
    assert min(ratios) == 6
    assert ratios[19] == pytest.approx(1.0)
    assert ratios[24] == pytest.approx(0.0005)


def test_the_timeout_of_collectives_is_published() -> None:
    monitor = Monitor()
    monitor.observe(Event("nccl_timeout", "Watchdog caught", {"rank": "1", "timeout_ms": "120000"}))
    (published,) = monitor.rows()
    assert published.values == {Metric("posttrain_collective_timeout_seconds"): 120.0}


def test_every_published_name_is_in_the_vocabulary() -> None:
    monitor, _, _ = drive(healthy(40, 0))
    names = {m.name for each in monitor.rows() for m in each.values}
    assert names
    assert names <= set(METRICS)


def test_every_cause_of_the_run_has_its_judge() -> None:
    by_tokens = {"wrong_advantage_groups"}
    assert set(RUN_CAUSES) - by_tokens <= set(judges())
    assert set(judges()) <= set(RUN_CAUSES) | set(TOKEN_CAUSES)


def test_a_judge_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = Monitor()

    def broken(_: object) -> None:
        raise ZeroDivisionError("by design")

    monkeypatch.setitem(monitor._judges, "stalled", broken)  # type: ignore[arg-type]
    monitor.observe(Event("cuda_oom", "torch.OutOfMemoryError: CUDA out of memory.", {}))
    assert [d.cause for d in monitor.tick(1.0)] == ["gpu_out_of_memory"]
    assert monitor.failed == {"stalled": "ZeroDivisionError: by design"}
