"""An intake that goes on where another stopped: every kind of source, nothing twice, readers as if never stopped."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from sources.trainers.test_tracked_files import VERSION, scalar

from posttrain_watchdog.config import RunConfig
from posttrain_watchdog.intake import Intake
from posttrain_watchdog.model import Event, Row, TokenBatch
from posttrain_watchdog.sources.checkpoints import Place
from posttrain_watchdog.sources.journal import Journal
from posttrain_watchdog.sources.tail import Tail
from posttrain_watchdog.sources.told import lines_before

TRL = "{{'loss': {0}.0, 'grad_norm': 0.5, 'learning_rate': 1e-06, 'reward': 0.25, 'epoch': {1}}}\n"


def record(n: int) -> str:
    return TRL.format(n, n / 100)


def follow(path: Path, places: dict[Path, Place] | None = None) -> Intake:
    return Intake(RunConfig(name="r", paths=[str(path)]), places=places)


def steps(intake: Intake, now: float = 1.0) -> list[int | None]:
    return [item.step for _, item in intake.poll(now) if isinstance(item, Row)]


def test_records_without_a_step_are_counted_on(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_text("".join(record(n) for n in range(1, 6)))
    first = follow(log)
    assert steps(first) == [1, 2, 3, 4, 5]
    with log.open("a") as file:
        file.write(record(6) + record(7)[:20])
    second = follow(log, first.places())
    assert steps(second) == [6]
    with log.open("a") as file:
        file.write(record(7)[20:])
    assert steps(second) == [7]
    assert steps(follow(log, second.places())) == []


def test_they_are_counted_on_over_a_rotation_too(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_text("".join(record(n) for n in range(1, 4)))
    first = follow(log)
    assert steps(first) == [1, 2, 3]
    log.rename(log.with_name("stdout.log.1"))
    log.write_text("".join(record(n) for n in range(4, 7)))
    places = first.places()
    assert steps(first) == [4, 5, 6]
    assert steps(follow(log, places)) == [4, 5, 6]
    with log.with_name("stdout.log.1").open("rb") as file, gzip.open(log.with_name("stdout.log.1.gz"), "wb") as packed:
        packed.write(file.read())
    log.with_name("stdout.log.1").unlink()
    with log.open("a") as file:
        file.write(record(7))
    assert steps(follow(log, first.places())) == [7]


def told(intake: Intake) -> list[object]:
    return [comparable(item) for _, item in intake.poll(1.0)]


def comparable(item: object) -> object:
    if isinstance(item, Row):
        return item.step, item.time, sorted((m, repr(v)) for m, v in item.values.items())
    return repr(item)


@pytest.mark.parametrize("path", sorted(p for p in (ROOT / "tests/data/trainers").rglob("*.log")), ids=lambda p: p.stem)
def test_every_trainers_log_gives_the_same_wherever_a_restart_cuts_it(path: Path, tmp_path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    whole = tmp_path / "whole.log"
    whole.write_bytes(b"".join(lines))
    expected = told(follow(whole))
    for n, cut in enumerate(range(1, len(lines), max(1, len(lines) // 12))):
        log = tmp_path / f"{n}.log"
        log.write_bytes(b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
        first = follow(log)
        before = told(first)
        with log.open("ab") as file:
            file.write(lines[cut][len(lines[cut]) // 2 :] + b"".join(lines[cut + 1 :]))
        assert before + told(follow(log, first.places())) == expected, f"cut behind line {cut}"


def test_a_log_is_read_from_its_place_and_its_reader_has_seen_what_is_before(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n\0\0two\nhalf")
    tail = Tail(log)
    assert [line for chunk in tail.poll() for line in chunk.lines] == [b"one", b"two"]
    place = tail.position()
    assert place is not None
    with log.open("ab") as file:
        file.write(b" a line\nmore\n")
    assert [line for lines in lines_before(place, log) for line in lines] == [b"one", b"two"]
    assert list(lines_before(place, tmp_path / "other.log")) == []


def test_a_state_file_written_anew_tells_only_its_new_steps(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"

    def write(last: int) -> None:
        history = [{"step": n, "loss": 1.0, "grad_norm": 0.5, "reward": 0.1} for n in range(1, last + 1)]
        path.write_text(json.dumps({"global_step": last, "log_history": history}, indent=2))
        os.utime(path, (last, last))

    write(3)
    first = follow(path)
    assert steps(first) == [1, 2, 3]
    assert steps(follow(path, first.places())) == []
    write(5)
    assert steps(follow(path, first.places())) == [4, 5]


def test_a_packed_log_is_not_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "old.gz"
    with gzip.open(path, "wb") as file:
        file.write("".join(record(n) for n in range(1, 4)).encode())
    first = follow(path)
    assert steps(first) == [1, 2, 3]
    assert steps(follow(path, first.places())) == []


def test_an_event_file_goes_on_behind_its_last_record(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(VERSION + b"".join(scalar("train/loss", n / 2, n) for n in (1, 2)))
    first = follow(path)
    assert steps(first) == [1, 2]
    with path.open("ab") as file:
        file.write(scalar("train/loss", 1.5, 3))
    assert steps(follow(path, first.places())) == [3]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_a_pipe_cannot_be_read_again_and_its_last_lines_are_kept_for_the_reader(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    first = follow(pipe)
    os.write(writer, (record(1) + record(2)).encode())
    assert steps(first) == [1, 2]
    places = first.places()
    first.close()
    os.write(writer, record(3).encode())
    second = follow(pipe, places)
    found = steps(second) + steps(second)
    assert found == [3]
    os.close(writer)
    second.close()


def test_a_journal_goes_on_behind_its_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "journal"
    script = (
        "import json, sys\n"
        "for line in open(sys.argv[1]):\n"
        "    if json.loads(line)['__CURSOR'] > sys.argv[2]: print(line, end='', flush=True)\n"
    )

    def write(first: int, last: int) -> None:
        with store.open("a") as file:
            for n in range(first, last):
                file.write(json.dumps({"__CURSOR": f"c{n}", "MESSAGE": record(n).strip()}) + "\n")

    made = Journal.__init__

    def scripted(self: Journal, unit: str, cursor: str = "") -> None:
        made(self, unit, lambda _, after: [sys.executable, "-c", script, str(store), after], cursor)

    monkeypatch.setattr(Journal, "__init__", scripted)

    def until_its_end(intake: Intake) -> list[int | None]:
        found: list[int | None] = []
        while not any(source.error for source in intake.sources()):
            found += steps(intake)
        return found

    run = RunConfig(name="r", journal_units=["train.service"])
    write(1, 4)
    first = Intake(run)
    assert until_its_end(first) == [1, 2, 3]
    write(4, 6)
    assert until_its_end(Intake(run, places=first.places())) == [4, 5]


def test_events_before_the_place_are_not_told_again(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    log.write_text(record(1) + oom + record(2))
    first = follow(log)
    assert [item.kind for _, item in first.poll(1.0) if isinstance(item, Event)] == ["cuda_oom"]
    with log.open("a") as file:
        file.write(record(3))
    second = follow(log, first.places())
    assert [type(i) for _, i in second.poll(1.0)] == [Row]


def test_a_dump_that_was_written_anew_keeps_its_number_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"

    def write(step: int, logprob: float) -> None:
        record = {"step": step, "engine_logprobs": [logprob], "trainer_logprobs": [logprob]}
        path.write_text(json.dumps(record) + "\n")

    write(5, -1.0)
    first = follow(path)
    assert [item.reading for _, item in first.poll(1.0) if isinstance(item, TokenBatch)] == [0]
    write(5, -0.123456)
    assert [item.reading for _, item in first.poll(2.0) if isinstance(item, TokenBatch)] == [1]
    second = follow(path, first.places())
    with path.open("a") as file:
        file.write(json.dumps({"step": 6, "engine_logprobs": [-1.0], "trainer_logprobs": [-1.0]}) + "\n")
    assert [item.reading for _, item in second.poll(3.0) if isinstance(item, TokenBatch)] == [1]
