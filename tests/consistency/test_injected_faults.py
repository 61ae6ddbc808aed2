"""Faults injected into a small language model: named, dated, and healthy runs silent, whatever the seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from consistency.toy import Side, Toy

from posttrain_watchdog.consistency.monitor import Monitor
from posttrain_watchdog.model import Diagnosis, TokenBatch

ONSET = 12


def diagnose(batch: TokenBatch) -> list[Diagnosis]:
    monitor = Monitor()
    monitor.observe(batch)
    monitor.flush()
    return monitor.diagnoses()


def since(batch: TokenBatch) -> list[tuple[int, int]]:
    rows = np.flatnonzero(batch.step >= ONSET)
    return [(int(batch.offsets[i]), int(batch.offsets[i + 1])) for i in rows]


def shifted(seed: int) -> TokenBatch:
    batch = Toy(seed).run()
    for a, z in since(batch):
        batch.engine_logprobs[a:z] = np.roll(batch.engine_logprobs[a:z], 1)
    return batch


def misrouted(seed: int) -> TokenBatch:
    batch = Toy(seed).run()
    engine = batch.engine_logprobs.copy()
    for step in range(ONSET, int(batch.step.max()) + 1):
        rows = np.flatnonzero(batch.step == step)
        for i, j in zip(rows, np.roll(rows, 1), strict=True):
            a, z = batch.offsets[i], batch.offsets[i + 1]
            given = engine[batch.offsets[j] : batch.offsets[j + 1]]
            batch.engine_logprobs[a:z] = np.resize(given, z - a)
    return batch


def one_replica(seed: int) -> TokenBatch:
    batch = Toy(seed).run()
    batch.labels = {"replica": [str(i % 4) for i in range(batch.sequences)]}
    rng = np.random.default_rng(seed)
    for k, (a, z) in enumerate(since(batch)):
        if k % 4 == 2:
            noise = 1.0 + 0.3 * rng.normal(size=z - a)
            batch.engine_logprobs[a:z] = np.minimum(-1e-4, batch.engine_logprobs[a:z] * noise)
    return batch


FAULTS: dict[str, tuple[set[str], int, Callable[[int], TokenBatch]]] = {
    "raw logprobs at 0.85": (
        {"logprobs_mode_raw"},
        0,
        lambda s: Toy(s, engine=Side(0.85, raw=True), trainer=Side(0.85)).run(),
    ),
    "raw logprobs at 1.2": (
        {"logprobs_mode_raw"},
        0,
        lambda s: Toy(s, engine=Side(1.2, raw=True), trainer=Side(1.2)).run(),
    ),
    "engine at another temperature": (
        {"temperature_mismatch"},
        0,
        lambda s: Toy(s, engine=Side(1.0), trainer=Side(0.85)).run(),
    ),
    "top-p 0.9": ({"truncated_sampling"}, 0, lambda s: Toy(s, engine=Side(0.9, top_p=0.9)).run()),
    "top-k 20 with bf16": ({"truncated_sampling"}, 0, lambda s: Toy(s, engine=Side(0.9, top_k=20, noise=0.004)).run()),
    "repetition penalty": ({"logit_processor"}, 0, lambda s: Toy(s, engine=Side(0.9, penalty=1.1)).run()),
    "sync stopped": ({"stale_weights"}, ONSET, lambda s: Toy(s, lag=lambda k: max(0, k - ONSET + 1)).run()),
    "sync stopped with bf16": (
        {"stale_weights"},
        ONSET,
        lambda s: Toy(s, engine=Side(0.9, noise=0.004), lag=lambda k: max(0, k - ONSET + 1)).run(),
    ),
    "always one update behind": ({"policy_lag", "stale_weights"}, 1, lambda s: Toy(s, lag=lambda k: 1).run()),
    "half of the tensors wrong": ({"weights_corrupted"}, ONSET, lambda s: Toy(s, corrupt_from=ONSET).run()),
    "routing differs": ({"routing_mismatch"}, 0, lambda s: Toy(s, engine=Side(0.9, noise=0.003), tail=0.01).run()),
    "another prefix": ({"context_mismatch"}, ONSET, lambda s: Toy(s, wrong_prefix=lambda k: k >= ONSET).run()),
    "neighbour's logprob": ({"logprobs_shifted"}, ONSET, shifted),
    "another sequence's logprobs": ({"sequences_misrouted"}, ONSET, misrouted),
    "one replica of four": ({"partial_divergence"}, ONSET, one_replica),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("entropy", [True, False], ids=["entropy", "no entropy"])
def test_an_injected_fault_is_named_and_dated(name: str, entropy: bool) -> None:
    causes, onset, build = FAULTS[name]
    batch = build(3)
    if not entropy:
        batch.entropy = None
    found = diagnose(batch)
    assert found[0].cause in causes, [(d.cause, d.confidence, d.summary) for d in found[:3]]
    assert found[0].confidence >= 0.5 or not entropy
    assert found[0].first_step is not None
    assert onset <= found[0].first_step <= onset + 5


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", [0.0, 0.004, 0.01])
def test_a_healthy_run_names_nothing_but_the_noise_of_its_number_format(seed: int, noise: float) -> None:
    temperature = [0.7, 1.0, 1.2][seed]
    side = Side(temperature, noise=noise)
    found = diagnose(Toy(seed, engine=side, trainer=side).run())
    assert {d.cause for d in found if d.confidence >= 0.5} <= {"precision_noise"}


def test_the_replica_that_diverges_is_named() -> None:
    found = diagnose(one_replica(5))
    assert found[0].evidence["told_by"] == "replica"
    assert found[0].labels == (("replica", str(found[0].evidence["value"])),)
    assert 0.1 < float(found[0].evidence["share_of_sequences"]) < 0.3


def test_a_mechanism_in_one_replica_is_named_with_the_replica() -> None:
    """Three replicas report processed logprobs, the fourth raw ones."""
    good = Toy(7, steps=24, engine=Side(0.7), trainer=Side(0.7), sequences=24).run()
    raw = Toy(7, steps=24, engine=Side(0.7, raw=True), trainer=Side(0.7), sequences=24).run()
    wrong = np.arange(good.sequences) % 4 == 3
    good.engine_logprobs[np.repeat(wrong, np.diff(good.offsets))] = raw.engine_logprobs[
        np.repeat(wrong, np.diff(raw.offsets))
    ]
    good.labels = {"replica": [str(i % 4) for i in range(good.sequences)]}
    found = diagnose(good)
    assert found[0].cause == "logprobs_mode_raw"
    assert found[0].labels == (("replica", "3"),)
    assert found[0].evidence["share_of_sequences"] == pytest.approx(0.25, abs=0.05)
