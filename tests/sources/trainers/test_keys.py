"""The tables of the dialects and the knowledge base say the same of every key, its sign and what was clipped before."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from posttrain_watchdog.vocabulary import METRICS
from posttrain_watchdog.vocabulary.trainer import CANONICAL, PREFIX

MODULES = {
    "trl_grpo": ("trl", "KEYS"),
    "trl_async_grpo": ("trl", "ASYNC_KEYS"),
    "verl": ("verl", "KEYS"),
    "ms_swift": ("ms_swift", "KEYS"),
    "llama_factory": ("llama_factory", "KEYS"),
    "openrlhf": ("openrlhf", "KEYS"),
    "slime": ("slime", "KEYS"),
    "nemo_rl": ("nemo_rl", "KEYS"),
    "prime_rl": ("prime_rl", "KEYS"),
    "areal": ("areal", "KEYS"),
    "skyrl": ("skyrl", "KEYS"),
    "roll": ("roll", "KEYS"),
    "rlinf": ("rlinf", "KEYS"),
}
NOT_TAKEN = {
    ("skyrl", "policy/loss_metrics/is_ratio_min"): "the minimum includes masked zeros",
    ("skyrl", "policy/loss_metrics/is_ratio_std"): "masked zeros count in the deviation",
    ("nemo_rl", "train/num_masked_seqs_by_logprob_error"): "a count, the canonical name is a fraction",
    ("nemo_rl", "train/num_masked_seqs"): "a count, the canonical name is a fraction",
    ("areal", "ppo_actor/seq_len/avg"): "counts the prompt; the dialect subtracts it",
    ("llama_factory", "throughput"): "all tokens of the checkpoint over the time of this process: leaps at a resume",
    ("roll", "token/total_response_length/clip"): "a count, the canonical name is a fraction",
    ("areal", "ppo_actor/seq_len/max"): "counts the prompt, and maxima cannot be subtracted",
}
STEPS = {"step", "epoch"}


def table(framework: str) -> dict[str, str]:
    name, attribute = MODULES[framework]
    module = importlib.import_module(f"posttrain_watchdog.sources.trainers.{name}")
    keys = dict(getattr(module, attribute))
    return {**dict(module.KEYS), **keys} if attribute != "KEYS" else keys


def scales(framework: str) -> dict[str, float]:
    module = importlib.import_module(f"posttrain_watchdog.sources.trainers.{MODULES[framework][0]}")
    return dict(getattr(module, "SCALES", {}))


@pytest.fixture(scope="module")
def synonyms(knowledge: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((knowledge / "synonyms.json").read_text(encoding="utf-8"))
    return found


def pairs(synonyms: dict[str, Any], framework: str) -> list[tuple[str, str]]:
    return [
        (canonical, key)
        for canonical, keys in synonyms[framework].items()
        for key in ([keys] if isinstance(keys, str) else keys)
        if canonical not in STEPS
    ]


def clipped(synonyms: dict[str, Any], framework: str) -> set[str]:
    """Short names that the knowledge base calls taken after clipping or masking, for this framework."""
    found: set[str] = set()
    for entry in synonyms["_meta"]["post_clip_or_mask"]:
        owner, _, name = entry.partition(" ")[0].partition("(")[0].partition(".")
        if owner == framework:
            found.add(name)
    return found


@pytest.mark.parametrize("framework", sorted(MODULES))
def test_every_known_key_has_its_canonical_name(synonyms: dict[str, Any], framework: str) -> None:
    known = table(framework)
    after_clipping = clipped(synonyms, framework)
    wrong = {}
    for canonical, key in pairs(synonyms, framework):
        if (framework, key) in NOT_TAKEN:
            assert key not in known, NOT_TAKEN[framework, key]
            continue
        expected = CANONICAL.get(canonical, canonical)
        if canonical in after_clipping and canonical.startswith("is_ratio_"):
            expected = canonical.replace("is_ratio_", "is_weight_")
        found = known.get(key)
        # one key may have two canonical names: a loss that is the policy loss, a step that is a weight version
        others = {CANONICAL.get(c, c) for c, k in pairs(synonyms, framework) if k == key}
        if found != expected and found not in others:
            wrong[key] = (found, expected)
    assert not wrong


@pytest.mark.parametrize("framework", sorted(MODULES))
def test_every_short_name_is_in_the_vocabulary(framework: str) -> None:
    assert {short for short in table(framework).values() if PREFIX + short not in METRICS} == set()


@pytest.mark.parametrize("framework", sorted(MODULES))
def test_signs_are_turned_exactly_where_the_framework_has_the_other_one(
    synonyms: dict[str, Any], framework: str
) -> None:
    signs = synonyms["_meta"]["sign_vs_canonical"]
    expected = {
        key
        for canonical, key in pairs(synonyms, framework)
        if signs.get(f"{framework}.{canonical}", 1) < 0 and key in table(framework)
    }
    assert {key for key, scale in scales(framework).items() if scale < 0} == expected


@pytest.mark.parametrize("framework", sorted(MODULES))
def test_statistics_after_clipping_never_stand_under_the_plain_ratio(synonyms: dict[str, Any], framework: str) -> None:
    known = table(framework)
    after_clipping = clipped(synonyms, framework)
    mixed = [
        key
        for canonical, key in pairs(synonyms, framework)
        if canonical in after_clipping and known.get(key, "").startswith("is_ratio_")
    ]
    assert not mixed


def test_what_is_raw_stays_under_the_plain_ratio(synonyms: dict[str, Any]) -> None:
    for framework, key in (
        ("slime", "train/tis"),
        ("roll", "actor/train_infer_ratio_token_mean"),
        ("skyrl", "policy/loss_metrics/is_ratio_mean"),
        ("trl_async_grpo", "ratio"),
    ):
        assert table(framework)[key] == "is_ratio_mean"
    assert table("slime")["train/ois"] == "ppo_ratio_mean"
    assert table("trl_grpo")["kl"] == "kl_ref"
    assert table("trl_async_grpo")["kl"] == "mismatch_kl_k3"
