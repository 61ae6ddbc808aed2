"""A unit's journal, followed with a stand-in for journalctl."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from posttrain_watchdog.sources.journal import Journal, journalctl

PRINT = """
import json, sys
for line in open(sys.argv[1]):
    if json.loads(line)["__CURSOR"] > sys.argv[2]:
        print(line, end="", flush=True)
"""


def record(cursor: str, message: object) -> str:
    return json.dumps({"__CURSOR": cursor, "MESSAGE": message}) + "\n"


def until_the_end(journal: Journal) -> list[bytes]:
    found: list[bytes] = []
    for _ in range(10_000_000):
        found += [line for chunk in journal.poll() for line in chunk.lines]
        if journal.error:
            return found
    raise AssertionError("the stand-in does not end")


def test_messages_come_once_over_restarts_of_journalctl(tmp_path: Path) -> None:
    store = tmp_path / "journal"
    store.write_text(record("a", "{'loss': 0.1}") + record("b", "two\nlines") + record("c", list(b"b\xffytes")))
    calls: list[str] = []

    def command(unit: str, cursor: str) -> Sequence[str]:
        calls.append(cursor)
        return [sys.executable, "-c", PRINT, str(store), cursor]

    journal = Journal("train.service", command)
    first = until_the_end(journal)
    assert first == [b"{'loss': 0.1}", b"two", b"lines", "b\ufffdytes".encode()]
    with store.open("a") as file:
        file.write("\n".join([record("d", "more"), ""]).rstrip("\n") + "\n")
    assert until_the_end(journal) == [b"more"]
    assert calls == ["", "c"]
    journal.close()


def test_messages_are_as_old_as_the_journal_says(tmp_path: Path) -> None:
    store = tmp_path / "journal"
    stamps = ["1764608352000001", "1764608352999999", "1764608353000000", "soon", None]
    lines = [{"__CURSOR": str(n), "MESSAGE": f"m{n}", "__REALTIME_TIMESTAMP": at} for n, at in enumerate(stamps)]
    store.write_text("".join(json.dumps(line) + "\n" for line in lines))
    journal = Journal("train.service", lambda *_: [sys.executable, "-c", PRINT, str(store), ""])
    found = []
    while not journal.error:
        found += [(chunk.lines, chunk.time) for chunk in journal.poll()]
    seconds = {time for _, time in found}
    assert seconds == {1764608352.0, 1764608353.0, None}
    assert [line for lines, time in found if time == 1764608352.0 for line in lines] == [b"m0", b"m1"]
    journal.close()


def test_without_journalctl_it_says_so() -> None:
    journal = Journal("train.service", lambda *_: ["/nonexistent/journalctl"])
    assert list(journal.poll()) == []
    assert "journalctl" in journal.error


def test_the_unit_is_an_argument_and_never_a_shell_word() -> None:
    assert "--unit=a; rm -rf /" in journalctl("a; rm -rf /", "")
    assert "--after-cursor=s=1" in journalctl("a", "s=1")
