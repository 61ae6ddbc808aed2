"""Dumps as people attach them to issues: one step, no entropy, nulls and zeros where something is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from consistency.samples import Record, batch, record

from posttrain_watchdog.consistency.monitor import Monitor


def named(records: list[Record]) -> tuple[str, float]:
    monitor = Monitor()
    monitor.observe(batch(records))
    monitor.flush()
    found = [d for d in monitor.diagnoses() if d.cause != "precision_noise"]
    return (found[0].cause, found[0].confidence) if found else ("", 0.0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def records(rng: np.random.Generator, count: int = 32, **how: float) -> list[Record]:
    made = [record(rng, length=int(rng.integers(50, 120)), **how) for _ in range(count)]  # type: ignore[arg-type]
    return [r | {"group_id": f"g{i // 4}", "prompt_len": 64} for i, r in enumerate(made)]


def jumble(rng: np.random.Generator, each: Record, size: float) -> None:
    each["trainer_logprobs"] = [
        min(0.0, v + float(rng.normal()) * size * min(1.0, abs(v) + 0.1))
        for v in each["trainer_logprobs"]  # type: ignore[attr-defined]
    ]


def test_silence_on_a_healthy_dump(rng: np.random.Generator) -> None:
    assert named(records(rng))[1] < 0.5


@pytest.mark.parametrize("temperature", [0.6, 0.8, 1.2])
def test_raw_logprobs(rng: np.random.Generator, temperature: float) -> None:
    dump = records(rng, sampled_at=temperature, reported_at=1.0, trained_at=temperature)
    cause, sure = named(dump)
    assert cause == "logprobs_mode_raw"
    assert sure >= 0.5


@pytest.mark.parametrize("temperature", [0.8, 1.2])
def test_a_trainer_that_forgets_the_temperature(rng: np.random.Generator, temperature: float) -> None:
    dump = records(rng, sampled_at=temperature, reported_at=temperature, trained_at=1.0)
    assert named(dump)[0] == "temperature_mismatch"


@pytest.mark.parametrize("top_p", [0.8, 0.9, 0.95])
def test_top_p(rng: np.random.Generator, top_p: float) -> None:
    cause, sure = named(records(rng, top_p=top_p))
    assert cause == "truncated_sampling"
    assert sure >= 0.5


@pytest.mark.parametrize("blank", [0.0, None], ids=["zero", "null"])
def test_tool_tokens_in_the_mask(rng: np.random.Generator, blank: float | None) -> None:
    dump = records(rng)
    for each in dump:
        for i in range(20, 32):
            each["engine_logprobs"][i] = blank  # type: ignore[index]
            each["trainer_logprobs"][i] = -float(rng.exponential(3))  # type: ignore[index]
    assert named(dump)[0] == "mask_covers_tool_tokens"


def test_tool_tokens_outside_the_mask_are_no_fault(rng: np.random.Generator) -> None:
    dump = records(rng)
    for each in dump:
        for i in range(20, 32):
            each["engine_logprobs"][i] = 0.0  # type: ignore[index]
            each["trainer_logprobs"][i] = -float(rng.exponential(3))  # type: ignore[index]
            each["mask"][i] = 0  # type: ignore[index]
    assert named(dump)[1] < 0.5


@pytest.mark.parametrize(("value", "cause"), [("NaN", "non_finite"), (None, "engine_logprobs_missing")])
def test_rows_that_were_masked_because_they_have_no_logprobs(
    rng: np.random.Generator, value: str | None, cause: str
) -> None:
    dump = records(rng)
    for each in dump[::8]:
        length = len(each["mask"])  # type: ignore[arg-type]
        each["engine_logprobs"] = [value] * length
        each["mask"] = [0] * length
    assert named(dump)[0] == cause


def test_some_prompts_diverge(rng: np.random.Generator) -> None:
    dump = records(rng)
    for i, each in enumerate(dump):
        if i // 4 in (2, 5):
            jumble(rng, each, 0.8)
    assert named(dump)[0] == "partial_divergence"


def test_rows_with_a_cached_prefix_diverge(rng: np.random.Generator) -> None:
    dump = records(rng)
    for i, each in enumerate(dump):
        each["cached_tokens"] = [0, 0, 32, 48][i % 4]
        if each["cached_tokens"]:
            jumble(rng, each, 0.2)
    assert named(dump)[0] == "stale_prefix_cache"


def test_two_passes_of_the_trainer_differ(rng: np.random.Generator) -> None:
    dump = records(rng)
    for each in dump:
        each["trainer_logps_rescore"] = list(each["trainer_logprobs"])  # type: ignore[call-overload]
        jumble(rng, each, 0.5)
    assert named(dump)[0] == "trainer_not_reproducible"


def test_a_bf16_head_leaves_a_grid(rng: np.random.Generator) -> None:
    dump = records(rng)
    for each in dump:
        exact = np.array(each["trainer_logprobs"], np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        each["trainer_logprobs"] = exact.view(np.float32).astype(float).tolist()
    assert named(dump)[0] == "trainer_logprobs_invalid"


def test_an_end_token_that_never_counts(rng: np.random.Generator) -> None:
    dump = records(rng)
    for each in dump:
        each["mask"][-1] = 0  # type: ignore[index]
    assert named(dump)[0] == "mask_drops_eos"


def test_an_appended_end_token_counts(rng: np.random.Generator) -> None:
    dump = records(rng)
    for each in dump[::3]:
        each["engine_logprobs"][-1] = 0.0  # type: ignore[index]
        each["trainer_logprobs"][-1] = -9.0  # type: ignore[index]
        each["token_ids"][-2] = 4242  # type: ignore[index]
    assert named(dump)[0] == "unsampled_eos_trained"


def test_several_weight_versions_in_one_sequence(rng: np.random.Generator) -> None:
    dump = records(rng)
    for each in dump[::4]:
        length = len(each["mask"])  # type: ignore[arg-type]
        each["token_versions"] = [3] * 20 + [4] * (length - 20)
    assert named(dump)[0] == "mixed_weight_versions"


def test_a_known_lag_is_policy_lag_however_large_the_noise(rng: np.random.Generator) -> None:
    dump = [
        record(rng, step=step) | {"engine_weight_version": step - 2, "trainer_weight_version": step}
        for step in range(2, 8)
        for _ in range(8)
    ]
    for each in dump:
        jumble(rng, each, 0.1)
    assert named(dump)[0] == "policy_lag"


def test_the_engine_is_cut_short(rng: np.random.Generator) -> None:
    dump = records(rng)
    for each in dump[::2]:
        each["engine_logprobs"] = each["engine_logprobs"][:-3]  # type: ignore[index]
    assert named(dump)[0] == "length_mismatch"
