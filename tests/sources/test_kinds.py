"""Every file of the real recordings and of the open cases is taken for what it is, whatever it is called."""

from __future__ import annotations

import gzip
import json
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest

from posttrain_watchdog.sources import kinds
from posttrain_watchdog.sources.kinds import Kind, Refused
from posttrain_watchdog.sources.tail import MAX_LINE

NATIVE = Kind(kinds.TOKENS, "native")
EXPECTED = {
    "tokens.jsonl*": NATIVE,
    "samples.jsonl": NATIVE,
    "trainer_state.json": Kind(kinds.TRAINER_STATE),
    "completions_*.parquet": Kind(kinds.COMPLETIONS),
    "metrics_scrapes.jsonl": Kind(kinds.SCRAPES),
    "metrics*.txt": Kind(kinds.METRICS),
    "chat_*.jsonl": Kind(kinds.RESPONSES),
    "completions_t*.jsonl": Kind(kinds.RESPONSES),
    "odd.jsonl": Kind(kinds.RESPONSES),
    "procs.txt": Kind(kinds.PROCESSES),
    "*.log": Kind(kinds.TEXT),
    "host.csv": Kind(kinds.TEXT),
    "logging.jsonl*": Kind(kinds.TEXT),
    "metrics.jsonl": Kind(kinds.TEXT),
    "history.jsonl": Kind(kinds.TEXT),
    "notebook_table.txt": Kind(kinds.TEXT),
}
"""By the name that the file has there, which `classify` is not told."""


def expected(name: str) -> Kind | None:
    return next((kind for pattern, kind in EXPECTED.items() if fnmatch(name, pattern)), None)


def known(folder: Path) -> list[tuple[Path, Kind]]:
    files = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    return [(p, kind) for p in files if (kind := expected(p.name)) is not None]


@pytest.mark.parametrize("where", ["recordings", "cases"])
def test_every_file_is_known_by_its_content(where: str, recordings: Path, cases: Path, tmp_path: Path) -> None:
    files = known(recordings if where == "recordings" else cases)
    assert len(files) > 20
    nameless = tmp_path / "file"
    wrong = {}
    for path, kind in files:
        nameless.unlink(missing_ok=True)
        nameless.symlink_to(path)
        if (found := kinds.classify(nameless)) != kind:
            wrong[f"{path.parent.name}/{path.name}"] = found
    assert wrong == {}


def test_the_last_word_of_a_short_ms_swift_log_makes_it_no_trainer_state(tmp_path: Path) -> None:
    log, last = tmp_path / "logging.jsonl", '{"global_step": 2, "log_history": [{"loss": 0.1, "step": 1}]}\n'
    log.write_text('{"loss": 0.1, "epoch": 0.1, "global_step/max_steps": "1/2"}\n' + last)
    assert kinds.classify(log) == Kind(kinds.TEXT)
    log.write_text(last)
    assert kinds.classify(log) == Kind(kinds.TRAINER_STATE)


def test_packed_files_are_what_is_in_them(recordings: Path, tmp_path: Path) -> None:
    packed = tmp_path / "file"
    for name in (
        "server-mode-processed/metrics.txt",
        "server-mode-processed/metrics_scrapes.jsonl",
        "healthy/trainer_state.json",
    ):
        with (recordings / name).open("rb") as plain, gzip.open(packed, "wb", 1) as file:
            shutil.copyfileobj(plain, file)
        assert kinds.classify(packed) == expected(Path(name).name)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\x1f\x8b broken", "cannot be read"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 100, "program"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 100, "picture"),
        (b"SQLite format 3\0" + b"\0" * 100, "database"),
        (b"PK\x03\x04" + b"\0" * 100, "zip"),
        (b"PAR1" + b"\0" * 100, "parquet"),
        (b"\x80\x04\x95" + b"\0" * 100, "pickle"),
        (bytes(range(32)) * 50, "binary"),
    ],
)
def test_what_is_not_read_is_refused_with_the_reason(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"  # a name that promises more than there is
    path.write_bytes(content)
    with pytest.raises(Refused, match=reason):
        kinds.classify(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(Refused, match="cannot be read"):
            kinds.classify(path)


def test_a_log_with_some_nul_bytes_and_bad_text_stays_a_log(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"step:1 - loss:0.5\n\0\0\xff\xfe bad \xc3\x28\nstep:2 - loss:0.4\n" * 20)
    assert kinds.classify(path) == Kind(kinds.TEXT)


@pytest.mark.parametrize("packed", [False, True])
def test_the_first_line_of_a_dump_of_long_sequences_tells_its_kind(tmp_path: Path, packed: bool) -> None:
    tokens = 40_000
    record = {"step": 1, "token_ids": [12345] * tokens, "engine_logprobs": [-0.12345] * tokens}
    data = (json.dumps(record) + "\n").encode()
    assert len(data) > 2 * kinds.HEAD
    path = tmp_path / "dump"
    path.write_bytes(gzip.compress(data) if packed else data)
    assert kinds.classify(path) == NATIVE
    assert kinds.has_line(path)


def test_a_file_is_what_comes_behind_a_first_line_that_nobody_can_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (MAX_LINE + kinds.HEAD))
    assert not kinds.has_line(path)
    with path.open("ab") as file:
        file.write(b'\n{"step": 1, "token_ids": [1, 2], "engine_logprobs": [-0.5, -0.5]}\n')
    assert kinds.has_line(path)
    assert kinds.classify(path) == NATIVE
