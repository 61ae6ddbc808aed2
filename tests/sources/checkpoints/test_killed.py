"""A reader that is killed with SIGKILL, wherever it stands, loses no line and counts none twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from posttrain_watchdog.model import Event
from posttrain_watchdog.sources.checkpoints import Checkpoints
from posttrain_watchdog.state import State

READING = Path(__file__).with_name("reading.py")
ROUNDS = int(os.environ.get("WATCHDOG_KILLS", "3"))
"""more of them try more moments"""


def read(state: Path, log: Path, moment: str = "never", count: int = 0) -> int:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "watchdog")}
    command = [sys.executable, str(READING), str(state), str(log), moment, str(count)]
    return subprocess.run(command, env=environment, timeout=60, check=False).returncode


def stored(state: Path) -> list[bytes]:
    opened = State(state)
    try:
        return [kept.item.text.encode() for kept in Checkpoints(opened).items() if isinstance(kept.item, Event)]
    finally:
        opened.close()


def write(log: Path, first: int, count: int) -> list[bytes]:
    lines = [b"line %d" % n for n in range(first, first + count)]
    with log.open("ab") as file:
        file.write(b"\n".join(lines) + b"\n")
    return lines


def rotate(log: Path) -> None:
    """train.log becomes train.log.1, that .2, as logrotate does."""
    for number in range(len(list(log.parent.glob("train.log.*"))), 0, -1):
        log.with_name(f"train.log.{number}").replace(log.with_name(f"train.log.{number + 1}"))
    log.replace(log.with_name("train.log.1"))


@pytest.mark.parametrize("moment", ["before the save", "before the commit", "after the commit"])
def test_killed_where_it_hurts(moment: str, tmp_path: Path) -> None:
    state, log = tmp_path / "state.sqlite", tmp_path / "train.log"
    truth = write(log, 0, 400)
    with log.open("ab") as file:
        file.write(b"half of a li")
    assert read(state, log, moment, 2) == -signal.SIGKILL
    assert len(stored(state)) < len(truth)
    with log.open("ab") as file:
        file.write(b"ne\n")
    truth += [b"half of a line", *write(log, 400, 50)]
    assert read(state, log) == 0
    assert stored(state) == truth


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed_again_and_again_while_the_log_is_rotated(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    state, log = tmp_path / "state.sqlite", tmp_path / "train.log"
    truth = write(log, 0, 10)
    assert read(state, log) == 0  # from here on there is a place to go on from
    for _ in range(4):
        truth += write(log, len(truth), chance.randrange(100, 500))
        moment = chance.choice(["before the save", "before the commit", "after the commit"])
        assert read(state, log, moment, chance.randrange(1, 4)) == -signal.SIGKILL
        if chance.random() < 0.5:
            rotate(log)
            truth += write(log, len(truth), 10)
            assert read(state, log) == 0
            truth += write(log, len(truth), 10)
    assert read(state, log) == 0
    assert stored(state) == truth
