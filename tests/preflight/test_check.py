"""Preflight on whole configurations: what a good one must not hear, what a bad one must."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ROOT

from posttrain_watchdog.preflight import Finding, check, recognised
from posttrain_watchdog.preflight.framework import at_least, frameworks, version_key
from posttrain_watchdog.preflight.judges.correction import expected_weight
from posttrain_watchdog.preflight.render import as_json, as_sarif, as_text
from posttrain_watchdog.vocabulary import CAUSES

DATA = ROOT / "tests" / "data" / "preflight"
GOOD = sorted((DATA / "good").iterdir())
BAD = sorted((DATA / "bad").iterdir())


def said(findings: list[Finding], *severities: str) -> set[tuple[str, str]]:
    return {(f.check, f.key.rpartition(".")[2]) for f in findings if f.severity in (severities or (f.severity,))}


@pytest.mark.parametrize("path", GOOD, ids=lambda p: p.name)
def test_a_good_configuration_hears_no_warning(path: Path) -> None:
    assert [f for f in check([path]) if f.severity != "info"] == []
    assert recognised(path)


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.name)
def test_every_objection_names_its_place_its_figure_or_consequence_and_a_known_cause(path: Path) -> None:
    findings = check([path])
    assert any(f.severity in ("critical", "warning") for f in findings)
    lines = path.read_text().splitlines()
    for f in findings:
        assert len(f.why) > 20
        assert f.cause == "" or f.cause in CAUSES
        if f.line and path.suffix in (".yaml", ".toml"):
            assert f.key.rpartition(".")[2] in lines[f.line - 1], f


EXPECTED = {
    "trl_grpo.yaml": {
        ("truncated-sampling", "top_p"), ("penalty", "repetition_penalty"),
        ("renamed-key", "vllm_importance_sampling_cap"), ("correction-length", "vllm_importance_sampling_mode"),
        ("gpu-memory", "vllm_gpu_memory_utilization"), ("collective-timeout", "ddp_timeout"),
        ("router-replay", "model_name_or_path"),
    },
    "trl_dump.txt": {
        ("correction-mode", "vllm_importance_sampling_mode"), ("correction-off", "vllm_importance_sampling_correction"),
        ("truncated-sampling", "top_k"), ("number-format", "fp16"), ("gpu-memory", "vllm_gpu_memory_utilization"),
    },
    "trl_server.sh": {
        ("logprobs-mode", "logprobs_mode"), ("lengths", "max_model_len"), ("model", "model"), ("server", "model"),
        ("number-format", "dtype"), ("gpu-memory", "gpu_memory_utilization"),
    },
    "verl.yaml": {
        ("renamed-key", "rollout_is"), ("renamed-key", "rollout_is_threshold"), ("unknown-key", "rollout_iss"),
        ("logprobs-mode", "logprobs_mode"), ("truncated-sampling", "top_p"), ("engine-logprobs", "calculate_log_probs"),
        ("number-format", "quantization"), ("router-replay", "mode"), ("collective-timeout", "nccl_timeout"),
        ("gpu-memory", "gpu_memory_utilization"),
    },
    "ms_swift.sh": {
        ("unknown-key", "rollout_importance_sampling_threshhold"), ("penalty", "repetition_penalty"),
        ("truncated-sampling", "top_p"), ("truncated-sampling", "top_k"),
        ("correction-off", "rollout_importance_sampling_mode"), ("router-replay", "router_replay_mode"),
        ("gpu-memory", "vllm_gpu_memory_utilization"),
    },
    "llama_factory.yaml": {
        ("truncated-sampling", "top_p"), ("truncated-sampling", "top_k"), ("mask", "train_on_prompt"),
    },
    "openrlhf.sh": {
        ("renamed-key", "enable_vllm_is_correction"), ("renamed-key", "vllm_is_truncated_threshold"),
        ("truncated-sampling", "top_p"), ("gpu-memory", "gpu_memory_utilization"),
    },
    "nemo_rl.yaml": {
        ("logprobs-mode", "logprobs_mode"), ("correction-off", "use_importance_sampling_correction"),
        ("correction-off", "truncated_importance_sampling_ratio"), ("number-format", "precision"),
        ("number-format", "kv_cache_dtype"), ("policy-lag", "max_trajectory_age_steps"), ("router-replay", "enabled"),
        ("gpu-memory", "gpu_memory_utilization"),
    },
    "prime_rl.toml": {
        ("logprobs-mode", "logprobs_mode"), ("truncated-sampling", "top_p"), ("policy-lag", "max_off_policy_steps"),
        ("collective-timeout", "dist_timeout_seconds"), ("router-replay", "enable_router_replay"),
        ("gpu-memory", "gpu_memory_utilization"),
    },
    "slime.sh": {
        ("logprobs-mode", "SGLANG_RETURN_ORIGINAL_LOGPROB"), ("correction-cap", "tis_clip"),
        ("correction-conflict", "use_rollout_logprobs"), ("collective-timeout", "distributed_timeout_minutes"),
        ("router-replay", "use_rollout_routing_replay"), ("gpu-memory", "sglang_mem_fraction_static"),
        ("gpu-memory", "mem_fraction_static"),
    },
    "vllm.sh": {("logprobs-mode", "logprobs_mode"), ("number-format", "quantization")},
    "sglang.sh": {
        ("logprobs-mode", "SGLANG_RETURN_ORIGINAL_LOGPROB"), ("gpu-memory", "mem_fraction_static"),
        ("number-format", "kv_cache_dtype"),
    },
    "areal.yaml": {
        ("logprobs-mode", "logprobs_mode"), ("temperature", "temperature"), ("renamed-key", "behave_imp_weight_cap"),
        ("policy-lag", "max_head_offpolicyness"),
    },
    "skyrl.yaml": {
        ("logprobs-mode", "logprobs_mode"), ("truncated-sampling", "top_p"), ("engine-logprobs", "logprobs"),
        ("renamed-key", "use_tis"), ("renamed-key", "tis_imp_ratio_cap"), ("correction-off", "tis_ratio_type"),
    },
    "requirements.txt": {("version", "torch"), ("version", "vllm")},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_bad_configuration_hears_of_each_fault_and_of_nothing_else(name: str) -> None:
    assert said(check([DATA / "bad" / name]), "critical", "warning") == EXPECTED[name]


def test_every_bad_configuration_has_its_expectation() -> None:
    assert {p.name for p in BAD} == set(EXPECTED)


def test_server_mode_before_trl_0_28_reports_raw_logprobs(tmp_path: Path) -> None:
    config = tmp_path / "grpo.yaml"
    config.write_text("use_vllm: true\nvllm_mode: server\ntemperature: 0.85\nmax_completion_length: 256\n")
    old = said(check([config], {"trl": "0.27.2"}), "critical")
    assert ("logprobs-mode", "vllm_mode") in old
    assert "logprobs-mode" not in {c for c, _ in said(check([config], {"trl": "0.28.0"}))}


def test_a_key_that_came_later_is_unknown_to_an_older_version(tmp_path: Path) -> None:
    config = tmp_path / "grpo.yaml"
    config.write_text("use_vllm: true\nvllm_importance_sampling_clip_max: 10.0\nmax_completion_length: 256\n")
    assert ("unknown-key", "vllm_importance_sampling_clip_max") in said(check([config], {"trl": "0.27.2"}), "critical")
    pinned = tmp_path / "requirements.txt"
    pinned.write_text("trl==0.27.2\n")
    assert ("unknown-key", "vllm_importance_sampling_clip_max") in said(check([config, pinned]), "critical")


def test_processed_logprobs_of_vllm_0_10_1_lack_temperature(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("vllm serve M --logprobs-mode processed_logprobs --gpu-memory-utilization 0.8\n")
    assert ("vllm-version", "logprobs_mode") in said(check([script], {"vllm": "0.10.1.1"}), "critical")
    assert not said(check([script], {"vllm": "0.10.2"}), "critical", "warning")
    assert ("unknown-key", "logprobs_mode") in said(check([script], {"vllm": "0.9.2"}), "critical")


def test_the_engines_own_command_decides_over_the_trainers_default(tmp_path: Path) -> None:
    trainer, engine = tmp_path / "grpo.yaml", tmp_path / "serve.sh"
    trainer.write_text("use_vllm: true\nvllm_mode: server\ntemperature: 0.7\nmax_completion_length: 256\n")
    engine.write_text("vllm serve M\n")
    (finding,) = [f for f in check([trainer, engine]) if f.check == "logprobs-mode"]
    assert (finding.severity, Path(finding.path).name, finding.line) == ("critical", "serve.sh", 1)
    assert finding.fix == "--logprobs-mode processed_logprobs"
    engine.write_text("vllm serve M --logprobs-mode processed_logprobs\n")
    assert not [f for f in check([trainer, engine]) if f.check == "logprobs-mode"]


def test_raw_logprobs_at_temperature_one_are_a_warning_and_not_a_fault(tmp_path: Path) -> None:
    trainer = tmp_path / "run.yaml"
    trainer.write_text(
        "generator:\n  sampling_params: {temperature: 1.0, logprobs: 0}\n  inference_engine: {backend: vllm}\n"
    )
    (finding,) = [f for f in check([trainer]) if f.check == "logprobs-mode"]
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "empty"),
        (b"\x00\x01\x02binary", "binary"),
        (b"\xff\xfe\xff", "not UTF-8"),
        (b"a: [1, 2\nb: }", "not YAML"),
        (b"just words", "single value"),
        (b"[" * 5000, "nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_finding(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    (finding,) = check([path])
    assert finding.check == "unreadable"
    assert expected in finding.what or finding.what.startswith("cannot be read")


def test_a_missing_file_and_a_foreign_one_are_said(tmp_path: Path) -> None:
    (missing,) = check([tmp_path / "nothing.yaml"])
    assert "No such file" in missing.what
    foreign = tmp_path / "compose.yaml"
    foreign.write_text("services:\n  web:\n    image: nginx\n")
    (finding,) = check([foreign])
    assert (finding.check, finding.severity) == ("unrecognised", "info")
    assert not recognised(foreign)


def test_an_anchor_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml"
    rows = ["a0: &a0 {k: v}"] + [f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}, z: *a{i - 1}}}" for i in range(1, 40)]
    path.write_text("\n".join(rows))
    (finding,) = check([path])
    assert "more than" in finding.what


def test_the_expected_weight_of_long_sequences_agrees_with_the_published_table() -> None:
    """Mean masked at 3 and truncated at 3 for v = 2*T*k3 = 0.2, 0.5, 1, 2, 4, 8, 16 (knowledge: thresholds)."""
    v = (0.2, 0.5, 1, 2, 4, 8, 16)
    masked = [round(expected_weight(x / 2, 1.0, 3.0, masked=True), 2) for x in v]
    truncated = [round(expected_weight(x / 2, 1.0, 3.0, masked=False), 2) for x in v]
    assert masked == pytest.approx([0.99, 0.89, 0.73, 0.53, 0.33, 0.15, 0.04], abs=0.011)
    assert truncated == pytest.approx([1.0, 0.97, 0.89, 0.74, 0.51, 0.26, 0.08], abs=0.011)


def test_versions_compare_as_numbers() -> None:
    assert version_key("0.10.1.1") == (0, 10, 1, 1)
    assert at_least("0.10.2", "0.9.9")
    assert at_least("1.0", "1.0.0")
    assert not at_least("0.10.1.1", "0.10.2")
    assert at_least("2.6.0+cu124", "2.0")


def test_frameworks_map_each_key_once_and_know_their_own_defaults() -> None:
    names = [f.name for f in frameworks()]
    wanted = ("trl", "verl", "ms_swift", "llama_factory", "openrlhf", "nemo_rl", "prime_rl", "slime", "vllm", "sglang")
    assert set(wanted) <= set(names)
    for framework in frameworks():
        for rename in framework.renames:
            assert rename.old != rename.new
        for table in framework.defaults.values():
            assert [version_key(v) for v, _ in table] == sorted(version_key(v) for v, _ in table)


def test_text_json_and_sarif_say_the_same() -> None:
    findings = check([DATA / "bad" / "verl.yaml"])
    rows = json.loads(as_json(findings))["findings"]
    assert [r["check"] for r in rows] == [f.check for f in findings]
    run = json.loads(as_sarif(findings, "1.2.3"))["runs"][0]
    assert [r["ruleId"] for r in run["results"]] == [f.check for f in findings]
    levels = {"critical": "error", "warning": "warning", "info": "note"}
    assert [r["level"] for r in run["results"]] == [levels[f.severity] for f in findings]
    assert {r["id"] for r in run["tool"]["driver"]["rules"]} == {f.check for f in findings}
    assert all(r["locations"][0]["physicalLocation"]["region"]["startLine"] >= 1 for r in run["results"])
    text = as_text(findings)
    assert "verl.yaml:15: critical: the engine reports raw logprobs" in text
    assert "-logprobs_mode: raw_logprobs" in text
    assert as_text([]) == "nothing to object to\n"


def test_commands_of_recordings_are_read_as_they_are(recordings: Path) -> None:
    good = check([recordings / "vllm-processed_logprobs" / "command.json"])
    assert said(good, "critical", "warning") == set()
    assert ("logprobs-mode", "logprobs_mode") in said(
        check([recordings / "vllm-raw_logits" / "command.json"]), "critical"
    )
    assert said(check([recordings / "server-mode-processed" / "server_command.txt"]), "critical", "warning") == set()


def test_arguments_kept_in_shell_arrays_are_read(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        """#!/bin/bash
MODEL=/models/Qwen3-4B
CKPT_ARGS=(
   --hf-checkpoint $MODEL
   # --ref-load none
)
ROLLOUT_ARGS=(
   --rollout-temperature 0.8
   --rollout-max-response-len ${MAX:-8192}
)
GRPO_ARGS=(--use-tis --tis-clip 0.9)
ray job submit --address="http://127.0.0.1:8265" -- python3 train.py \\
   ${CKPT_ARGS[@]} \\
   "${ROLLOUT_ARGS[@]}" ${GRPO_ARGS[@]}
"""
    )
    (finding,) = [f for f in check([script]) if f.severity == "critical"]
    assert (finding.check, finding.line) == ("correction-cap", 11)
    assert recognised(script)


def test_a_configuration_inherits_what_it_builds_on(tmp_path: Path) -> None:
    base = tmp_path / "grpo_math_1B.yaml"
    base.write_text((DATA / "good" / "nemo_rl.yaml").read_text())
    child = tmp_path / "recipes" / "hot.yaml"
    child.parent.mkdir()
    child.write_text("defaults: ../grpo_math_1B.yaml\npolicy:\n  generation:\n    temperature: 0.7\n")
    assert said(check([child]), "critical", "warning") == set()
    child.write_text(
        "defaults: ../grpo_math_1B.yaml\npolicy:\n  generation:\n    vllm_cfg:\n      logprobs_mode: raw_logprobs\n"
    )
    (finding,) = [f for f in check([child]) if f.severity == "critical"]
    assert (finding.check, finding.line) == ("logprobs-mode", 5)


def test_a_configuration_that_builds_on_itself_ends(tmp_path: Path) -> None:
    a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
    a.write_text("defaults: b.yaml\nuse_vllm: true\n")
    b.write_text("defaults: a.yaml\ntemperature: 0.8\n")
    assert [f for f in check([a]) if f.check == "unreadable"] == []


def test_a_teachers_server_is_not_taken_for_the_sampler(tmp_path: Path) -> None:
    script = tmp_path / "opd.sh"
    script.write_text(
        "python3 -m sglang.launch_server --model-path /m/Qwen3-32B --mem-fraction-static 0.7\n"
        "python3 train.py --hf-checkpoint /m/Qwen3-8B --rollout-temperature 1.0 --use-tis --tis-clip 10.0\n"
    )
    assert said(check([script]), "critical", "warning") == set()
