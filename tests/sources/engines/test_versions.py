"""What reported logprobs contain, by version."""

from __future__ import annotations

import pytest

from posttrain_watchdog.vocabulary.engine_versions import framework_mode, parse_version, semantics


@pytest.mark.parametrize(
    ("version", "mode", "temperature", "truncation"),
    [
        ("0.6.3", None, True, True),
        ("0.8.5", None, False, False),
        ("0.9.2", "raw_logprobs", False, False),
        ("0.10.1.1", "processed_logprobs", False, False),
        ("0.10.2", "processed_logprobs", True, True),
        ("v0.31.0+cpu", "processed_logprobs", True, True),
        ("", None, False, False),
    ],
)
def test_vllm_over_time(version: str, mode: str | None, temperature: bool, truncation: bool) -> None:
    says = semantics("vllm", version, mode)
    assert says is not None and says.normalised
    assert (says.temperature, says.truncation) == (temperature, truncation)


def test_half_processed_is_after_penalties() -> None:
    says = semantics("vllm", "0.10.0", "processed_logprobs")
    assert says is not None and says.penalties
    assert not says.is_sampling_distribution(0.85)
    assert says.is_sampling_distribution(1.0, penalised=True)
    assert not says.is_sampling_distribution(1.0, truncated=True)


def test_logits_are_never_the_sampling_distribution() -> None:
    says = semantics("vllm", "0.31.0", "raw_logits")
    assert says is not None and not says.is_sampling_distribution(1.0)


def test_a_mode_that_the_version_does_not_have_is_unknown() -> None:
    assert semantics("vllm", "0.9.2", "processed_logprobs") is None
    assert semantics("tgi", "1.0") is None


def test_sglang_scales_and_does_not_truncate() -> None:
    says = semantics("sglang", "0.5.4")
    assert says is not None and says.is_sampling_distribution(0.6)
    assert not says.is_sampling_distribution(0.6, truncated=True)
    original = semantics("sglang", "0.5.4", "original")
    assert original is not None and not original.temperature
    assert semantics("sglang", "0.4.9", "original") is None


@pytest.mark.parametrize(
    ("framework", "version", "setting", "mode"),
    [
        ("trl", "0.23.1", "colocate", "raw_logprobs"),
        ("trl", "0.24.0", "colocate", "processed_logprobs"),
        ("trl", "0.27.1", "server", "raw_logprobs"),
        ("trl", "1.16.0", "server", "processed_logprobs"),
        ("verl", "0.6.1", "any", "raw_logprobs"),
        ("verl", "0.7.0", "any", "processed_logprobs"),
        ("nemo_rl", "", "recipe", "processed_logprobs"),
        ("skyrl", "", "any", "raw_logprobs"),
    ],
)
def test_what_frameworks_ask_for(framework: str, version: str, setting: str, mode: str) -> None:
    found = framework_mode(framework, version, setting)
    assert found is not None and found.mode == mode


def test_versions_as_they_are_printed() -> None:
    assert parse_version("v0.10.2rc1+cu128") == (0, 10, 2)
    assert parse_version("dev") == ()
