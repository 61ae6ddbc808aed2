"""Thousands of files, a folder with rotation in it, and a pipe, through the intake of the daemon."""

from __future__ import annotations

import os
from pathlib import Path

from posttrain_watchdog.config import RunConfig
from posttrain_watchdog.intake import Intake
from posttrain_watchdog.model import Row


def line(step: int) -> str:
    return f"{{'loss': 0.5, 'grad_norm': 0.25, 'learning_rate': 1e-06, 'step': {step}}}\n"


def steps(intake: Intake) -> int:
    return len([item for _, item in intake.poll(0.0) if isinstance(item, Row)])


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_thousands_of_files_and_a_bounded_number_open(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / f"rank_{number}.log").write_text(line(1) + line(2))
    intake, before = Intake(RunConfig(paths=[str(tmp_path)]), most_open=50), open_files()
    first = steps(intake)
    assert open_files() - before <= 50
    for number in range(0, 2000, 100):
        with (tmp_path / f"rank_{number}.log").open("a") as file:
            file.write(line(3))
    grown = steps(intake)
    assert open_files() - before <= 50
    intake.close()
    assert open_files() == before
    assert first >= 2000
    assert grown == 20


def test_rotated_files_in_a_followed_folder_are_read_once(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    (tmp_path / "train.log.1").write_text("".join(line(n) for n in range(1, 11)))
    log.write_text("".join(line(n) for n in range(11, 21)))
    intake = Intake(RunConfig(paths=[str(tmp_path)]))
    found = steps(intake)
    for first in (21, 31):
        (tmp_path / "train.log.1").rename(tmp_path / "train.log.2")
        log.rename(tmp_path / "train.log.1")
        log.write_text("".join(line(n) for n in range(first, first + 10)))
        found += steps(intake)
    found += sum(isinstance(item, Row) for _, item in intake.finish())
    intake.close()
    assert found == 40
    assert [s.path for s in intake.sources()] == [log]


def test_a_pipe_does_not_hold_the_daemon_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    intake = Intake(RunConfig(paths=[str(pipe)]))
    assert steps(intake) == 0
    with pipe.open("wb", buffering=0) as writer:
        writer.write((line(1) + line(2) + line(3)).encode())
        found = steps(intake)
    found += sum(isinstance(item, Row) for _, item in intake.finish())
    intake.close()
    assert found == 3
