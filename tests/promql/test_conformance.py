"""Prometheus' own language tests."""

from __future__ import annotations

from conftest import shared_folder
from promql.conformance import run


def test_every_case_of_prometheus_2_42_passes() -> None:
    passed, total, failures = run(shared_folder("promqltest"))
    assert failures == []
    assert passed == total == 566
