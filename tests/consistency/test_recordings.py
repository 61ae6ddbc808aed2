"""Every recording and every token case: the cause that is in it comes first, and healthy runs stay silent."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import yaml
from conftest import SHARED

from posttrain_watchdog.consistency.monitor import Monitor
from posttrain_watchdog.model import Diagnosis, TokenBatch
from posttrain_watchdog.sources.tokens import native

DUMPS = sorted([*SHARED.glob("recordings/*/tokens.jsonl.gz"), *SHARED.glob("cases/*/samples.jsonl")])


def read(path: Path) -> TokenBatch:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return native.read(raw.splitlines())


def diagnose(batch: TokenBatch) -> list[Diagnosis]:
    monitor = Monitor()
    monitor.observe(batch)
    monitor.flush()
    return monitor.diagnoses()


def complaints(expected: dict[str, object], found: list[Diagnosis]) -> list[str]:
    allowed = {"healthy", *expected.get("allowed_causes", [])}  # type: ignore[misc]
    named = [d for d in found if d.cause not in allowed]
    wrong = []
    if expected.get("healthy"):
        wrong += [f"false cause {d.cause}" for d in named if d.confidence >= 0.5]
    causes = expected.get("causes")
    if causes and (not named or named[0].cause not in causes):
        wrong.append(f"named {named[:1]}")
    wrong += [f"wrongly {d.cause}" for d in found if d.cause in expected.get("not_causes", []) and d.confidence >= 0.5]
    if causes and "onset_step" in expected and named:
        onset, delay = int(expected["onset_step"]), int(expected["max_delay_steps"])  # type: ignore[call-overload]
        first = named[0].first_step
        assert first is not None
        if not onset <= first <= onset + delay:
            wrong.append(f"dated to step {first}")
    return wrong


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: p.parent.name)
def test_the_cause_in_a_real_run_is_named_and_dated(path: Path) -> None:
    expected = yaml.safe_load((path.parent / "expected.yaml").read_text())
    assert complaints(expected, diagnose(read(path))) == []


NEEDS_ENTROPY = {"raw-logprobs", "temperature-engine1.0"}


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: p.parent.name)
def test_the_cause_is_named_without_entropies_too(path: Path) -> None:
    expected = yaml.safe_load((path.parent / "expected.yaml").read_text())
    batch = read(path)
    batch.entropy = None
    assert complaints(expected, diagnose(batch)) == []
