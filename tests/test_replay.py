"""The whole pipeline over real runs: the cause is named, healthy runs stay silent, bad files are told."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT

from posttrain_watchdog.alerting.rules import RuleSet
from posttrain_watchdog.config import Config
from posttrain_watchdog.replay import NothingUsable, Result, replay, runs_of
from posttrain_watchdog.report import html, text
from posttrain_watchdog.shipped import demo_recording, rule_files

RULES = RuleSet.load(rule_files())
OPEN_CASES = (
    "healthy", "healthy-kl", "raw-logprobs-T1", "raw-logprobs", "topk20-topp09", "stale-from15", "mask-pad-from20",
    "mask-shift", "nan-inf", "server-mode-processed",
)  # fmt: skip
LOUD = ("warning", "critical")


def run(*paths: Path) -> Result:
    return replay(list(paths), Config(), RULES)


def said(result: Result) -> dict[str, Any]:
    return json.loads(json.dumps(result.as_dict()["runs"][0], default=str))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def raw_run() -> Result:
    return run(demo_recording() / "raw-logprobs")


def test_the_bundled_run_that_goes_wrong_is_named_with_its_checks_in_the_guides_order(raw_run: Result) -> None:
    top = raw_run.runs[0].diagnoses[0]
    assert top.cause == "logprobs_mode_raw"
    assert top.confidence >= 0.5
    assert [
        word in check
        for word, check in zip(
            ("processed_logprobs", "prompt_logprobs", "completion_mask"), top.first_checks, strict=True
        )
    ] == [True, True, True]
    fired = {a.alert: a for a in raw_run.runs[0].alerts}
    assert fired["LogprobsModeWrong"].severity == "critical"
    assert fired["LogprobsModeWrong"].annotations["runbook"].startswith("docs/guide.md#")


def test_the_bundled_healthy_run_is_silent() -> None:
    found = run(demo_recording() / "healthy").runs[0]
    assert [a.alert for a in found.alerts if a.severity in LOUD] == []
    assert [d.cause for d in found.diagnoses if d.confidence >= 0.5 and d.cause != "healthy"] == []
    assert found.steps == (0, 60)


def test_the_answer_depends_on_the_files_alone(raw_run: Result) -> None:
    assert run(demo_recording() / "raw-logprobs").as_dict() == raw_run.as_dict()


def test_the_json_has_the_shape_that_others_script_against(raw_run: Result) -> None:
    found = said(raw_run)
    assert set(found) >= {"run", "steps", "alerts", "diagnoses", "metrics"}
    assert set(found["alerts"][0]) >= {
        "alert", "severity", "cause", "first_step", "first_time", "last_step", "value", "annotations",
    }  # fmt: skip
    assert set(found["diagnoses"][0]) >= {"cause", "confidence", "first_step", "tokens", "evidence"}
    assert found["metrics"]["posttrain_importance_ratio_mean"] > 0.9


def test_reports_name_the_cause_and_escape_what_came_from_a_file(raw_run: Result) -> None:
    assert "logprobs_mode_raw" in text(raw_run)
    raw_run.runs[0].alerts[0].annotations["summary"] = "<script>"
    page = html(raw_run)
    assert "logprobs_mode_raw" in page and "<script>" not in page and "&lt;script&gt;" in page


def test_without_entropy_the_cause_is_named_all_the_same(tmp_path: Path) -> None:
    with gzip.open(demo_recording() / "raw-logprobs" / "tokens.jsonl.gz", "rt") as file:
        records = [json.loads(line) for line in file]
    for record in records:
        del record["entropy"]
    (tmp_path / "dump.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    assert run(tmp_path).runs[0].diagnoses[0].cause == "logprobs_mode_raw"


@pytest.mark.slow
@pytest.mark.parametrize("name", OPEN_CASES)
def test_open_cases_hold(recordings: Path, name: str) -> None:
    expected = yaml.safe_load((recordings / name / "expected.yaml").read_text())
    found = run(recordings / name).runs[0]
    named = [
        d for d in found.diagnoses
        if d.confidence >= 0.5 and d.cause not in ("healthy", *expected.get("allowed_causes", []))
    ]  # fmt: skip
    if expected["healthy"]:
        assert [a.alert for a in found.alerts if a.severity in LOUD] == []
        assert [d.cause for d in named] == []
        return
    assert named[0].cause in expected["causes"]
    assert not {d.cause for d in named} & set(expected.get("not_causes", []))
    steps = [named[0].first_step, *(a.first_step for a in found.alerts if a.severity in LOUD)]
    first = min(s for s in steps if s is not None)
    assert expected["onset_step"] <= first <= expected["onset_step"] + expected["max_delay_steps"]


def test_a_dump_that_holds_only_some_rows_of_each_group_is_no_fault(tmp_path: Path) -> None:
    with gzip.open(demo_recording() / "healthy" / "tokens.jsonl.gz", "rt") as file:
        records = [json.loads(line) for line in file]
    kept = [json.dumps(r) + "\n" for r in records if r["seq"] % 2 == 0]
    (tmp_path / "dump.jsonl").write_text("".join(kept))
    found = run(tmp_path).runs[0]
    assert [d.cause for d in found.diagnoses if d.confidence >= 0.5] == []


def test_flight_recorders_of_a_hang_name_the_rank_that_is_behind() -> None:
    found = run(ROOT / "tests" / "data" / "sources" / "flight_recorder").runs[0]
    assert found.diagnoses[0].cause == "collective_hang"
    assert dict(found.diagnoses[0].labels)["rank"] == "2"


def test_files_of_one_folder_are_one_run_and_folders_are_runs_of_their_own(tmp_path: Path) -> None:
    for name in ("a/x.log", "a/y.log", "b/x.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    grouped = runs_of([tmp_path / "a" / "x.log", tmp_path / "a" / "y.log", tmp_path / "b"])
    assert {k: len(v) for k, v in grouped.items()} == {"a": 2, "b": 1}


def test_what_cannot_be_read_is_named_with_its_reason_and_hides_nothing(tmp_path: Path) -> None:
    shutil.copy(demo_recording() / "healthy" / "stdout.log.gz", tmp_path / "stdout.log.gz")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8b\x08\x00broken")
    (tmp_path / "prose").write_text("nothing to see\n")
    (tmp_path / "cut.jsonl.gz").write_bytes((demo_recording() / "healthy" / "tokens.jsonl.gz").read_bytes()[:60_000])
    result = run(tmp_path)
    reasons = {Path(p).name: r for p, r in result.unread}
    assert reasons["empty"] == "is empty"
    assert reasons["binary"].startswith("is binary")
    assert reasons["broken.gz"].startswith("cannot be read")
    assert reasons["prose"] == "no line of it is known"
    assert "ended before the end-of-stream" in reasons["cut.jsonl.gz"]
    assert result.runs[0].steps is not None and result.runs[0].steps[1] == 60


def test_nothing_usable_at_all_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(NothingUsable, match="is empty"):
        run(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret.log").write_text("step=1 loss=1\n")
    (tmp_path / "secret.log").chmod(0)
    with pytest.raises(NothingUsable, match="Permission denied"):
        run(tmp_path)
