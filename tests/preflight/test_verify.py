"""The go-live checklist: what passes, what fails, and what is not known."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from conftest import ROOT

from posttrain_watchdog.model import Diagnosis, Event, Metric, Row
from posttrain_watchdog.preflight import facts
from posttrain_watchdog.preflight.measurements import AVERAGED, LAST, POOLED, WORST_HIGH, WORST_LOW, Measurements
from posttrain_watchdog.preflight.verify import Line, exit_code, verify
from posttrain_watchdog.preflight.verify_render import as_html, as_json, as_junit, as_text
from posttrain_watchdog.vocabulary import METRICS

FACTS = {
    "is_cap": "10.0", "is_mode": "sequence_truncate", "torch_version": "2.9.1+cu126", "correction_interval": "100",
    "correction_window": "500", "collective_timeout": "300", "prompt_logprobs": "present",
}  # fmt: skip
EVIL = '<script>alert(1)</script>"&\x00\x1b'


def step(number: int, **values: float) -> Row:
    names = {f"posttrain_{k}": v for k, v in values.items()}
    return Row({Metric(name): value for name, value in names.items()}, number, float(number))


def healthy_step(number: int, ratio: float = 1.001, tokens: float = 300.0) -> Row:
    return step(
        number, importance_ratio_mean=ratio, importance_ratio_stderr=0.01, importance_ratio_max=1.8, kl_k3=0.0008,
        kl_k2=0.0008, kl_k1=0.0007, unscored_fraction=0.0, non_finite_fraction=0.0, tokens_compared=tokens,
        engine_seconds_per_token=0.007, trainer_wait_seconds=1.0, trainer_step_seconds=100.0,
        calibration_factor=0.9, trainer_is_correction_factor=0.91,
    )  # fmt: skip


def healthy() -> Measurements:
    measured = Measurements()
    measured.observe_all(healthy_step(n) for n in range(10))
    measured.observe(Row({Metric("posttrain_gpu_memory_reserve_ratio", {"gpu": "a"}): 0.25}))
    measured.observe(Event("engine_started", "", {"version": "0.11.0", "logprobs_mode": "processed_logprobs"}))
    measured.add_facts(FACTS)
    return measured


def line(lines: list[Line], id_: str) -> Line:
    return next(x for x in lines if x.id == id_)


def test_a_healthy_run_that_was_measured_in_full_passes_every_line() -> None:
    lines = verify(healthy())
    assert [x for x in lines if x.verdict != "pass"] == []
    assert exit_code(lines) == 0
    assert line(lines, "importance-ratio").samples == 3000
    assert line(lines, "latency").value == "7.0 ms"


def test_nothing_measured_is_unknown_everywhere_and_not_a_pass() -> None:
    lines = verify(Measurements())
    assert {x.verdict for x in lines} == {"unknown"}
    assert all(x.note for x in lines)
    assert exit_code(lines) == 1


def test_standard_errors_of_steps_pool_to_that_of_the_run() -> None:
    found = healthy().get("posttrain_importance_ratio_mean")
    assert found is not None
    assert found.stderr == pytest.approx(0.01 / math.sqrt(10))


def test_a_ratio_outside_the_band_fails_only_beyond_its_error() -> None:
    for ratio, error, tokens, verdict in (
        (1.25, 0.01, 1000.0, "fail"),
        (1.25, 0.1, 1000.0, "unknown"),
        (1.15, 0.05, 1000.0, "unknown"),
        (1.15, 0.01, 1000.0, "pass"),
        (1.0, 0.01, 100.0, "unknown"),
        (0.75, 0.01, 1000.0, "fail"),
        (math.inf, 0.01, 1000.0, "fail"),
    ):
        measured = Measurements()
        measured.observe(step(0, importance_ratio_mean=ratio, importance_ratio_stderr=error, tokens_compared=tokens))
        assert line(verify(measured), "importance-ratio").verdict == verdict, (ratio, error)


def test_a_kl_that_one_token_makes_is_unknown() -> None:
    measured = Measurements()
    measured.observe(step(0, kl_k3=5.0, kl_k2=0.02, tokens_compared=1000))
    assert line(verify(measured), "kl").verdict == "unknown"
    measured = Measurements()
    measured.observe(step(0, kl_k3=0.1, kl_k2=0.11, tokens_compared=1000))
    assert line(verify(measured), "kl").verdict == "fail"


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({"engine_seconds_per_token": 0.0151}, "latency"),
        ({"trainer_wait_seconds": 60.0}, "throughput"),
        ({"non_finite_fraction": 0.01}, "overflow"),
        ({"importance_ratio_max": math.inf}, "overflow"),
        ({"unscored_fraction": 0.5}, "logprobs-enabled"),
        ({"gpu_memory_reserve_ratio": 0.1}, "gpu-memory"),
        ({"trainer_is_correction_factor": 0.5}, "calibration"),
    ],
)
def test_one_bad_figure_fails_its_own_line_alone(change: dict[str, float], failed: str) -> None:
    measured = healthy()
    tokens = {"tokens_compared": 3000.0} if "fraction" in next(iter(change)) else {}
    measured.observe(step(11, **change, **tokens))
    if "engine_seconds_per_token" in change:
        measured.observe_all(step(n, **change) for n in range(12, 2000))
    assert [x.id for x in verify(measured) if x.verdict == "fail"] == [failed]


@pytest.mark.parametrize(
    ("fact", "value", "failed"),
    [
        ("is_cap", "3.0", "importance-cap"),
        ("is_mode", "sequence_mask", "is-mode"),
        ("logprobs_mode", "raw_logprobs", "logprobs-mode"),
        ("engine_version", "0.5.5", "engine-version"),
        ("torch_version", "1.13.1", "torch-version"),
        ("correction_interval", "50", "correction-interval"),
        ("correction_window", "100", "correction-window"),
        ("collective_timeout", "1800", "collective-timeout"),
        ("prompt_logprobs", "missing", "prompt-logprobs"),
    ],
)
def test_one_wrong_fact_fails_its_own_line_alone(fact: str, value: str, failed: str) -> None:
    measured = healthy()
    measured.add_facts({fact: value})
    assert [x.id for x in verify(measured) if x.verdict == "fail"] == [failed]


def test_a_named_cause_fails_and_an_ordinary_one_does_not() -> None:
    measured = healthy()
    measured.diagnoses = [Diagnosis("precision_noise", 0.9, "small", {}, ())]
    assert exit_code(verify(measured)) == 0
    measured.diagnoses = [Diagnosis("mask_shifted", 0.9, "the mask is moved by one", {}, ())]
    failed = [x for x in verify(measured) if x.verdict == "fail"]
    assert [x.id for x in failed] == ["completion-mask", "causes"]
    assert failed[0].note == "the mask is moved by one"
    measured.diagnoses = [Diagnosis("stale_weights", 0.4, "maybe", {}, ())]
    assert exit_code(verify(measured)) == 0


def test_every_figure_that_is_gathered_is_a_metric_of_the_vocabulary() -> None:
    names = {*POOLED, *AVERAGED, *WORST_LOW, *WORST_HIGH, *LAST}
    assert names <= set(METRICS)


def test_reports_say_the_same_and_escape_what_a_run_says() -> None:
    measured = healthy()
    measured.add_facts({"is_mode": EVIL})
    measured.diagnoses = [Diagnosis("mask_shifted", 0.9, EVIL, {}, ())]
    lines = verify(measured)
    assert "3 fail" in as_text(lines).splitlines()[-1]
    read = json.loads(as_json(lines))
    assert (read["ready"], [x["verdict"] for x in read["lines"]]) == (False, [x.verdict for x in lines])
    suite = ET.fromstring(as_junit(lines))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == (str(len(lines)), "3", "0")
    page = as_html(lines, EVIL)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    unknown = ET.fromstring(as_junit(verify(Measurements())))
    assert unknown.get("errors") == str(len(lines))


def test_configurations_beside_the_run_supply_the_facts() -> None:
    data = ROOT / "tests" / "data" / "preflight"
    good = facts([data / "good" / "trl_grpo.yaml", data / "good" / "requirements.txt"])
    assert good == {
        "is_mode": "sequence_truncate", "is_cap": "10", "logprobs_mode": "processed_logprobs",
        "collective_timeout": "300", "engine_version": "0.11.0", "torch_version": "2.9.1",
    }  # fmt: skip
    assert facts([data / "bad" / "trl_server.sh"])["logprobs_mode"] == "raw_logprobs"
    assert facts([data / "bad" / "nemo_rl.yaml"])["is_mode"] == "off"
    measured = healthy()
    measured.facts.clear()
    measured.add_facts(good)
    verdicts = {x.id: x.verdict for x in verify(measured)}
    assert verdicts["is-mode"] == verdicts["importance-cap"] == verdicts["engine-version"] == "pass"
    assert verdicts["correction-window"] == verdicts["prompt-logprobs"] == "unknown"


def test_the_guides_own_settings_are_found_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "calibration.yaml"
    path.write_text("importance_sampling:\n  correction_interval: 100\n  correction_window: 500\n")
    assert facts([path]) == {"correction_interval": "100", "correction_window": "500"}


def test_an_engine_that_generates_nothing_does_not_count_as_slow() -> None:
    measured = healthy()
    measured.observe_all(step(n, engine_seconds_per_token=math.nan) for n in range(20, 30))
    assert line(verify(measured), "latency").verdict == "pass"
    measured = Measurements()
    measured.observe(step(0, engine_seconds_per_token=math.nan))
    assert line(verify(measured), "latency").verdict == "unknown"


def test_a_running_daemon_answers_for_its_last_hundred_steps() -> None:
    window = {"window": "100"}
    values = {
        Metric("posttrain_importance_ratio_mean"): 9.0,
        Metric("posttrain_tokens_compared"): 10.0,
        Metric("posttrain_tokens_compared_total"): 12_000.0,
        Metric("posttrain_tokens_compared_window_mean", window): 300.0,
        Metric("posttrain_importance_ratio_mean_window_mean", window): 1.01,
        Metric("posttrain_importance_ratio_mean_window_mean", {"window": "20"}): 5.0,
        Metric("posttrain_importance_ratio_stderr_window_mean", window): 0.02,
        Metric("posttrain_kl_k3_window_mean", window): 0.001,
    }
    measured = Measurements()
    measured.observe(Row(values))
    found = measured.get("posttrain_importance_ratio_mean")
    assert found is not None
    assert (found.value, found.samples) == (pytest.approx(1.01), 12_000)
    assert found.stderr == pytest.approx(0.02 / math.sqrt(40))
    assert {x.id: x.verdict for x in verify(measured)}["kl"] == "pass"
