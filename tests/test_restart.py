"""A daemon that is restarted, by kill -9 or not, knows what the one before it knew, and counts nothing twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from posttrain_watchdog.config import Config
from posttrain_watchdog.daemon import Daemon
from posttrain_watchdog.model import Metric
from posttrain_watchdog.performance import Performer
from posttrain_watchdog.promql.values import Vector
from posttrain_watchdog.shipped import demo_recording, rule_files

KILLS = int(os.environ.get("WATCHDOG_KILLS", "2"))
"""more of them try more moments"""
BEGIN = 1_000_000.0
STEP_SECONDS = 10.0
LOSS = Metric("posttrain_trainer_loss")


class Life:
    """One run, watched by one daemon after the other."""

    def __init__(self, folder: Path) -> None:
        self.now = BEGIN
        self.folder = folder / "run"
        self._state = folder / "state.sqlite"
        self._performer = Performer(demo_recording() / "raw-logprobs", self.folder)
        self._daemons: list[Daemon] = []
        self.told: list[tuple[str, str]] = []
        self.begin_again()

    @property
    def daemon(self) -> Daemon:
        return self._daemons[-1]

    def begin_again(self, **run: object) -> None:
        """Nothing is closed before: a kill leaves no time for that."""
        settings = {
            "runs": [{"name": "raw", "paths": [str(self.folder)], **run}],
            "state": str(self._state),
            "nvml": {"enabled": False},
            "host": {"kernel_log": False, "processes": False},
        }
        self._daemons.append(Daemon(Config.model_validate(settings), rule_files(), now=lambda: self.now))

    def write(self, steps: int = 1) -> None:
        """Some steps of the run that nobody looks at."""
        for _ in range(steps):
            self._performer.perform()

    def live(self, steps: int) -> bool:
        """Some steps of the run; False once it is over."""
        for _ in range(steps):
            if self._performer.perform() is None:
                return False
            self.look()
            self.now += STEP_SECONDS
        return True

    def look(self) -> None:
        self.daemon.poll()
        self.told += [(t.alert.name, t.state) for t in self.daemon.tick().transitions]

    def known(self) -> dict[str, float]:
        return self.daemon.pipeline.runs["raw"].live.last()

    def ask(self, query: str) -> float:
        found = self.daemon.pipeline.engine.instant(query, self.daemon.pipeline.store.last_time)
        assert isinstance(found, Vector)
        return found.samples[0][1]

    def end(self) -> None:
        for daemon in self._daemons:
            asyncio.run(daemon.close())


def test_nobody_notices_a_restart(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    steady, restarted = Life(tmp_path / "a"), Life(tmp_path / "b")
    for steps in (9, 1, 17, 30):
        assert steady.live(steps) and restarted.live(steps)
        restarted.begin_again()
        steady.look()
        restarted.look()
    assert restarted.known() == pytest.approx(steady.known(), nan_ok=True)
    runs = [life.daemon.pipeline.runs["raw"] for life in (steady, restarted)]
    first, second = ([(d.cause, d.confidence, d.first_step) for d in run.diagnoses] for run in runs)
    assert first == second and first
    assert restarted.told == steady.told  # no alert is resolved and raised again, none comes twice
    for query in ("count_over_time(posttrain_trainer_loss[5m]) > bool 8", "max_over_time(posttrain_run_step[9m])"):
        assert restarted.ask(query) == steady.ask(query)
    steady.end()
    restarted.end()


def test_while_nobody_watched_nothing_was_lost(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    steady, absent = Life(tmp_path / "a"), Life(tmp_path / "b")
    steady.live(30)
    absent.live(5)
    absent.write(20)
    log = absent.folder / "stdout.log"
    log.rename(log.with_name("stdout.log.1"))
    absent.write(5)
    absent.begin_again()
    absent.look()
    assert absent.daemon.pipeline.runs["raw"].step == 30
    steady.look()
    series = 'posttrain_trainer_reward_mean_window_mean{window="100"}', "posttrain_tokens_compared_total"
    assert [absent.ask(query) for query in series] == pytest.approx([steady.ask(query) for query in series])
    steady.end()
    absent.end()


def test_an_old_event_stays_old(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.live(3)
    with (life.folder / "stdout.log").open("a") as file:
        file.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    life.look()
    when = life.now
    life.now += 7200.0
    life.begin_again()
    life.look()
    stamps = [v for name, v in life.known().items() if name.startswith("posttrain_event_timestamp_seconds{")]
    totals = [v for name, v in life.known().items() if name.startswith('posttrain_events_total{kind="')]
    assert stamps and max(stamps) == when
    assert totals and set(totals) == {1.0}
    assert life.known()["posttrain_run_seconds_since_step"] == pytest.approx(7200.0 + STEP_SECONDS)
    life.end()


def test_a_hung_run_is_as_old_as_its_log_for_a_daemon_that_comes_later(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.write(4)
    for path in life.folder.iterdir():
        os.utime(path, (BEGIN - 3600.0, BEGIN - 3600.0))
    life.look()
    assert life.known()["posttrain_run_seconds_since_step"] == 3600.0
    life.live(1)
    assert life.known()["posttrain_run_seconds_since_step"] == 0.0
    life.end()


def test_a_source_that_is_named_no_more_is_forgotten(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.live(4)
    life.begin_again(paths=[str(tmp_path / "elsewhere")])
    life.look()
    assert life.daemon.pipeline.runs["raw"].step is None
    life.end()


def test_a_state_file_that_cannot_be_written_does_not_end_the_watch(tmp_path: Path, caplog: Any) -> None:
    life = Life(tmp_path)
    life.live(2)
    with life.daemon._state.transaction() as connection:
        connection.execute("DROP TABLE items")
    life.live(4)
    assert life.daemon.pipeline.runs["raw"].step == 6
    assert sum("not kept over a restart" in r.message for r in caplog.records) == 1
    life.end()


WITNESSED = {"posttrain_run_step_timestamp_seconds", "posttrain_run_step_seconds_median"}
"""when a step was seen, which only a daemon that was there can know"""


def known(answer: Any) -> dict[str, float]:
    """The series; a cause that was suspected for some steps and withdrawn is known to one who watched them."""
    series = {name: value for name, value in answer["series"].items() if name.split("{")[0] not in WITNESSED}
    withdrawn = [n for n, v in series.items() if n.startswith("posttrain_diagnosis_confidence") and v == 0]
    return {name: value for name, value in series.items() if name not in withdrawn}


def run_until(state: Path, folder: Path, time: float, count: int) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(Path(__file__).with_name("living.py")),
        str(state),
        str(folder),
        str(time),
        str(count),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "watchdog")}
    return subprocess.run(command, env=environment, timeout=120, check=False, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(KILLS))
def test_killed_in_the_middle_of_polls(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    folder, state = tmp_path / "run", tmp_path / "state.sqlite"
    performer = Performer(demo_recording() / "raw-logprobs", folder)
    now = BEGIN
    for _ in range(4):
        for _ in range(chance.randrange(2, 9)):
            performer.perform()
        now += 60.0
        killed = run_until(state, folder, now, chance.randrange(1, 20))
        assert killed.returncode in (-signal.SIGKILL, 0), killed.stderr
    performer.perform()
    lived = run_until(state, folder, now + 60.0, 0)
    never = run_until(tmp_path / "fresh.sqlite", folder, now + 60.0, 0)
    assert (lived.returncode, never.returncode) == (0, 0), lived.stderr + never.stderr
    one, other = json.loads(lived.stdout), json.loads(never.stdout)
    assert known(one) == pytest.approx(known(other), nan_ok=True)
    assert one["causes"] == other["causes"]
