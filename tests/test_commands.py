"""The commands as people type them."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from conftest import ROOT
from typer.testing import CliRunner

from posttrain_watchdog.cli import app

RUNNER = CliRunner()


def free_address() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


def test_the_demo_ends_with_the_recordings_in_a_named_cause() -> None:
    done = RUNNER.invoke(app, ["demo", "--once", "--speed", "20", "--listen", free_address()])
    assert done.exit_code == 0, done.output
    assert "CRITICAL LogprobsModeWrong  run raw-logprobs" in done.output
    assert "CAUSE logprobs_mode_raw  run raw-logprobs" in done.output
    lines = done.output.splitlines()
    assert lines[-2:] == ["run healthy: nothing wrong found", "run raw-logprobs: logprobs_mode_raw"]
    assert not [line for line in lines if line.startswith(("CRITICAL", "WARNING", "CAUSE")) and "run healthy" in line]


def test_the_demo_says_so_when_its_address_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        done = RUNNER.invoke(app, ["demo", "--once", "--speed", "50", "--listen", taken])
    assert done.exit_code == 2
    assert f"cannot listen on {taken}: Address already in use" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["replay", "/nowhere"], "no such file or folder: /nowhere"),
        (["replay", "README.md", "--format", "yaml"], "--format: expected text or json"),
        (["replay", "README.md", "--fail-on", "loud"], "--fail-on: expected one of info, warning, critical"),
        (["verify"], "expected either files or --live URL"),
        (["check", "/nowhere"], "no such file or folder: /nowhere"),
        (["diagnose", str(ROOT / "README.md")], "not a token dump"),
        (["run", "-c", "/nowhere"], "/nowhere: No such file or directory"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_2(arguments: list[str], expected: str, tmp_path: Path) -> None:
    done = RUNNER.invoke(app, [a.replace("README.md", str(tmp_path)) if a == "README.md" else a for a in arguments])
    assert done.exit_code == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_fail_on_turns_a_severity_into_exit_1() -> None:
    case = str(ROOT / "watchdog" / "posttrain_watchdog" / "recordings" / "raw-logprobs")
    done = RUNNER.invoke(app, ["replay", case, "--format", "json", "--fail-on", "critical"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["runs"][0]["diagnoses"][0]["cause"] == "logprobs_mode_raw"


def test_the_shipped_rules_pass_check_and_test() -> None:
    rules = [str(p) for p in sorted((ROOT / "rules").glob("*.yml"))]
    assert RUNNER.invoke(app, ["rules", "check", *rules]).exit_code == 0
    done = RUNNER.invoke(app, ["rules", "test", str(ROOT / "rules" / "tests" / "engine.yml")])
    assert done.exit_code == 0 and "SUCCESS" in done.stdout


def test_the_checklist_does_not_take_unknown_for_pass(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("{'loss': 0.1, 'grad_norm': 0.2, 'reward': 0.3, 'epoch': 0.1}\n")
    done = RUNNER.invoke(app, ["verify", str(tmp_path)])
    assert done.exit_code == 1
    assert "unknown" in done.stdout
