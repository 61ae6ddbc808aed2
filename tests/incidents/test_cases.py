"""Public reports rebuilt as logs: the cause must be named, from the right step, and nothing else above it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from incidents.course import drive, loud
from incidents.logs import read

CASES = {
    "O01-trl-sequence-sum": "length_artefact",
    "O02-slow-mismatch-growth": "mismatch_growing",
    "O05-gptoss-pearson": "unknown",
    "O06-ms-swift-dead-run": "non_finite_training",
    "O07-oom-in-logprob": "gpu_out_of_memory",
    "O08-host-memory-leak": "host_memory_leak",
    "O10-zero-std-groups": "no_learning_signal",
    "O13-critic-failure": "value_function_failing",
    "O15-openrlhf-spike-recovers": "transient_spike",
    "P03-dynamic-sampling-exhausted": "sampling_exhausted",
    "P04-http500-minus-infinity": "engine_logprobs_missing",
    "P06-nonfinite-as-strings": "non_finite_training",
    "P07-entropy-explosion-not-length": "entropy_explosion",
}
SILENT = ("O14-nan-placeholder-not-divergence", "P05-every-rank-prints-its-own-loss", "P08-restart-rewinds-steps")
LOGS = {".log", ".jsonl", ".txt"}


def _items(case: Path) -> list:  # type: ignore[type-arg]
    inputs = [case / name for name in yaml.safe_load((case / "expected.yaml").read_text())["inputs"]]
    return [i for path in inputs if path.suffix in LOGS and path.name != "procs.txt" for i in read(path)]


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_named_above_all_others(cases: Path, name: str) -> None:
    _, found, _ = drive(_items(cases / name))
    best = max(found.values(), key=lambda d: d.confidence)
    assert best.cause == CASES[name]
    assert best.confidence >= 0.5
    assert len(best.first_checks) == 3
    onset = yaml.safe_load((cases / name / "expected.yaml").read_text()).get("onset_step")
    assert onset is None or best.first_step == onset


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_wrong(cases: Path, name: str) -> None:
    _, found, first = drive(_items(cases / name))
    assert first == {}
    assert loud(found) == {}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("O02-slow-mismatch-growth", 20),
        ("O06-ms-swift-dead-run", 304),
        ("O10-zero-std-groups", 3),
        ("O13-critic-failure", 6),
        ("P03-dynamic-sampling-exhausted", 7),
        ("P06-nonfinite-as-strings", 55),
        ("P07-entropy-explosion-not-length", 240),
    ],
)
def test_it_is_named_in_time(cases: Path, name: str, step: int) -> None:
    assert drive(_items(cases / name))[2][CASES[name]] <= step


def test_a_hang_in_the_weight_update_is_named_as_one(cases: Path) -> None:
    _, found, _ = drive(_items(cases / "O09-coalesced-rank0-behind"))
    assert loud(found).keys() == {"collective_hang", "weight_sync_stuck"}


def test_the_evidence_has_the_figures_that_a_person_asks_for(cases: Path) -> None:
    wanted = {
        "O01-trl-sequence-sum": ["0.0069", "14"],
        "O02-slow-mismatch-growth": ["0.0136 -> 0.03"],
        "O05-gptoss-pearson": ["healthy > 0.99", "healthy < 0.005"],
        "O13-critic-failure": ["-5.9", "151 -> 700", "0.41", "1.0169"],
        "O15-openrlhf-spike-recovers": ["17.3 at step 24", "4.1e+08"],
        "P03-dynamic-sampling-exhausted": ["2 -> 10", "0.04", "70.7"],
    }
    for name, figures in wanted.items():
        _, found, _ = drive(_items(cases / name))
        text = str(found[CASES[name]])
        assert [f for f in figures if f not in text] == [], text
