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


def said(batch: TokenBatch) -> list[list[str]]:
    """For every step, the causes that are said aloud once it is finished."""
    monitor, after = Monitor(), []
    for _, part in batch.by_step():
        monitor.observe(part)
        monitor.flush()
        after.append([d.cause for d in monitor.diagnoses() if d.confidence >= 0.5])
    return after


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
    "min-p 0.1": (
        {"truncated_sampling"},
        0,
        lambda s: Toy(s, engine=Side(1.2, min_p=0.1), trainer=Side(1.2)).run(),
    ),
    "top-k 10": ({"truncated_sampling"}, 0, lambda s: Toy(s, engine=Side(0.9, top_k=10)).run()),
    "repetition favoured": ({"logit_processor"}, 0, lambda s: Toy(s, engine=Side(0.9, penalty=0.9)).run()),
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
    assert {d.cause for d in found if d.confidence >= 0.5} <= causes


@pytest.mark.parametrize("name", ["raw logprobs at 0.85", "engine at another temperature", "top-k 20 with bf16"])
def test_a_cause_of_the_setup_once_said_goes_on_being_said_alone(name: str) -> None:
    after = said(FAULTS[name][2](11))
    first = next(i for i, causes in enumerate(after) if causes)
    assert first < 8
    assert all(set(causes) <= FAULTS[name][0] for causes in after)
    assert all(after[first:])


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


def with_current(seed: int, gap: Callable[[int], float]) -> TokenBatch:
    """A run whose dump has the logprobs in the loss as well, apart from the recomputed ones by `gap(step)`."""
    batch = Toy(seed, steps=16).run()
    rng = np.random.default_rng(seed)
    spread = np.repeat([gap(int(k)) for k in batch.step], np.diff(batch.offsets))
    batch.current_logprobs = (batch.trainer_logprobs + spread * rng.normal(size=batch.tokens)).astype(np.float32)
    return batch


def test_two_passes_that_never_agree_are_not_reproducible_and_updates_between_them_are_no_fault() -> None:
    dropout = diagnose(with_current(1, lambda step: 0.4))
    assert (dropout[0].cause, dropout[0].confidence > 0.5) == ("trainer_not_reproducible", True)
    assert float(dropout[0].evidence["rescoring_sd"]) == pytest.approx(0.4, abs=0.1)
    for updates in (1, 4):
        several = diagnose(with_current(1, lambda step, n=updates: 0.4 * (step % n)))
        assert "trainer_not_reproducible" not in {d.cause for d in several}
    assert diagnose(with_current(1, lambda step: 0.05)) == []


def padded(batch: TokenBatch, sequences: list[int]) -> TokenBatch:
    """The last three tokens of some sequences become padding under the mask."""
    for i in sequences:
        z = int(batch.offsets[i + 1])
        batch.engine_logprobs[z - 3 : z] = 0.0
        batch.trainer_logprobs[z - 3 : z] = -12.0
        batch.token_ids[z - 3 : z] = 0  # type: ignore[index]
    return batch


def test_one_odd_sequence_is_an_accident_and_two_are_a_fault() -> None:
    batch = Toy(2, steps=8).run()
    long = [i for i in range(batch.sequences) if batch.offsets[i + 1] - batch.offsets[i] > 8]
    once, twice = diagnose(padded(batch, long[:1])), diagnose(padded(batch, long[:2]))
    assert [d.cause for d in once if d.confidence >= 0.5] == []
    assert [d.cause for d in twice if d.confidence >= 0.5] == ["mask_covers_padding"]


def test_a_lone_candidate_of_min_p_is_no_tool_output() -> None:
    """min-p keeps one candidate alone at any probability: the engine then says exactly 0 of an unlikely token."""
    batch = Toy(4, engine=Side(0.6, min_p=0.3), trainer=Side(0.6)).run()
    certain = np.flatnonzero(batch.engine_logprobs == 0.0)
    assert len(certain) > 0.05 * batch.tokens
    inside = [int(i) for i in certain if i + 1 not in batch.offsets and i not in batch.offsets]
    lowest = float((batch.trainer_logprobs - batch.engine_logprobs).min())
    batch.trainer_logprobs[inside[:2]] = min(-0.75, lowest - 0.05)
    found = diagnose(batch)
    assert [d.cause for d in found if d.confidence >= 0.5] == ["truncated_sampling"]
