"""Every way in which a followed file has been seen to change under its reader, one test each."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from posttrain_watchdog.sources.tail import PATIENCE, Tail


def lines(tail: Tail) -> list[bytes]:
    return [line for chunk in tail.poll() for line in chunk.lines]


def end(tail: Tail) -> list[bytes]:
    found = [line for chunk in tail.finish() for line in chunk.lines]
    tail.close()
    return found


def append(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


def test_renamed_and_recreated(log: Path, tmp_path: Path) -> None:
    append(log, b"1\n")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    append(log, b"2\n")
    log.rename(tmp_path / "train.log.1")
    append(log, b"3\n")
    assert lines(tail) == [b"2", b"3"]
    assert end(tail) == []


def test_renamed_with_a_gap_before_the_new_file(log: Path, tmp_path: Path) -> None:
    append(log, b"1\n")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    append(log, b"2\n")
    log.rename(tmp_path / "train.log.1")
    assert lines(tail) == [b"2"]
    for _ in range(2 * PATIENCE):
        assert lines(tail) == []
    append(log, b"3\n")
    assert lines(tail) == [b"3"]
    tail.close()


def test_two_rotations_between_polls(log: Path, tmp_path: Path) -> None:
    append(log, b"1\n")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    append(log, b"2\n")
    log.rename(tmp_path / "train.log.1")
    append(log, b"3\n")
    (tmp_path / "train.log.1").rename(tmp_path / "train.log.2")
    log.rename(tmp_path / "train.log.1")
    append(log, b"4\n")
    assert lines(tail) == [b"2", b"3", b"4"]
    tail.close()


def test_two_rotations_between_polls_the_first_one_packed(log: Path, tmp_path: Path) -> None:
    append(log, b"1\n")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    log.rename(tmp_path / "train.log.1")
    append(log, b"2\n")
    with gzip.open(tmp_path / "train.log.2.gz", "wb") as packed:
        packed.write((tmp_path / "train.log.1").read_bytes())
    info = (tmp_path / "train.log.1").stat()
    os.utime(tmp_path / "train.log.2.gz", ns=(info.st_atime_ns, info.st_mtime_ns))
    (tmp_path / "train.log.1").unlink()
    log.rename(tmp_path / "train.log.1")
    append(log, b"3\n")
    assert lines(tail) == [b"2", b"3"]
    tail.close()


def test_late_writes_after_the_rename_and_a_half_line_among_them(log: Path, tmp_path: Path) -> None:
    with log.open("ab", buffering=0) as writer:
        writer.write(b"1\nhal")
        tail = Tail(log)
        assert lines(tail) == [b"1"]
        log.rename(tmp_path / "train.log.1")
        append(log, b"3\n")
        assert lines(tail) == [b"3"]
        writer.write(b"f\n2\n")
        assert lines(tail) == [b"half", b"2"]
    assert end(tail) == []


def test_the_last_line_of_a_rotated_file_without_a_newline(log: Path, tmp_path: Path) -> None:
    append(log, b"1\nlast")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    log.rename(tmp_path / "train.log.1")
    append(log, b"2\n")
    assert lines(tail) == [b"2"]
    late = [line for _ in range(PATIENCE + 1) for line in lines(tail)]
    assert late == [b"last"]
    assert tail.open_files == 1
    tail.close()


def test_copytruncate_with_lines_written_since_the_last_poll(log: Path, tmp_path: Path) -> None:
    append(log, b"first line\n")
    tail = Tail(log)
    assert lines(tail) == [b"first line"]
    append(log, b"second line\nthi")
    shutil.copy(log, tmp_path / "train.log.1")
    os.truncate(log, 0)
    append(log, b"rd line\nfourth\n")
    assert lines(tail) == [b"second line", b"third line", b"fourth"]
    assert tail.lost_files == 0
    tail.close()


def test_emptied_without_a_copy(log: Path) -> None:
    append(log, b"first line\nhalf")
    tail = Tail(log)
    assert lines(tail) == [b"first line"]
    os.truncate(log, 0)
    append(log, b"2\n")
    assert lines(tail) == [b"half", b"2"]
    assert tail.lost_files == 1
    tail.close()


def test_emptied_and_longer_than_before_within_one_poll(log: Path) -> None:
    append(log, b"1\n")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    log.write_bytes(b"2\n3\n4\n")
    assert lines(tail) == [b"2", b"3", b"4"]
    tail.close()


def test_deleted_and_recreated(log: Path) -> None:
    append(log, b"1\n")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    append(log, b"2\n")
    log.unlink()
    append(log, b"3\n")
    assert lines(tail) == [b"2", b"3"]
    tail.close()


def test_a_deleted_file_is_let_go_and_its_inode_may_return(log: Path) -> None:
    append(log, b"1\nhalf")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    log.unlink()
    assert [line for _ in range(PATIENCE + 1) for line in lines(tail)] == [b"half"]
    assert tail.open_files == 0
    append(log, b"1\n2\n")
    assert lines(tail) == [b"1", b"2"]
    tail.close()


def test_a_saved_place_whose_inode_holds_another_file(log: Path) -> None:
    append(log, b"1\n2\n")
    tail = Tail(log)
    assert lines(tail) == [b"1", b"2"]
    place = tail.position()
    tail.close()
    log.write_bytes(b"another\nfile\n")
    again = Tail(log, place)
    assert lines(again) == [b"another", b"file"]
    again.close()


def test_a_saved_offset_beyond_the_end(log: Path) -> None:
    append(log, b"1\n2\n3\n")
    tail = Tail(log)
    lines(tail)
    place = tail.position()
    tail.close()
    os.truncate(log, 2)
    again = Tail(log, place)
    assert lines(again) == [b"1"]
    again.close()


def test_rotated_while_nobody_looked(log: Path, tmp_path: Path) -> None:
    append(log, b"1\n")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    place = tail.position()
    tail.close()
    append(log, b"2\n")
    log.rename(tmp_path / "train.log.2")
    append(tmp_path / "train.log.1", b"3\n")
    os.utime(tmp_path / "train.log.1", ns=(2**61, 2**61))
    append(log, b"4\n")
    again = Tail(log, place)
    assert lines(again) == [b"2", b"3", b"4"]
    again.close()


def test_rotated_and_packed_while_nobody_looked(log: Path, tmp_path: Path) -> None:
    append(log, b"1\n")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    place = tail.position()
    tail.close()
    append(log, b"2\n")
    with gzip.open(tmp_path / "train.log.1.gz", "wb") as packed:
        packed.write(log.read_bytes())
    log.unlink()
    append(log, b"3\n")
    again = Tail(log, place)
    assert lines(again) == [b"2", b"3"]
    again.close()


def test_the_replacement_cannot_be_read_at_first(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, b"1\n")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    append(log, b"2\n")
    log.rename(tmp_path / "train.log.1")
    append(log, b"3\n")
    real = os.open

    def refused(path: str, *rest: int) -> int:
        if Path(path) == log:
            raise PermissionError(13, "Permission denied")
        return real(path, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refused)
        assert lines(tail) == []
        assert tail.error == "Permission denied"
    assert lines(tail) == [b"2", b"3"]
    assert tail.error == ""
    tail.close()


def test_a_stale_handle_is_taken_anew(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, b"1\nha")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    append(log, b"lf\n")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", lambda *_: (_ for _ in ()).throw(OSError(116, "Stale file handle")))
        assert lines(tail) == []
        assert tail.error == "Stale file handle"
    assert lines(tail) == [b"half"]
    tail.close()


def test_a_half_line_waits_for_its_newline(log: Path) -> None:
    append(log, b"1\nha")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    append(log, b"l")
    assert lines(tail) == []
    append(log, b"f\n")
    assert lines(tail) == [b"half"]
    append(log, b"end")
    assert lines(tail) == []
    assert end(tail) == [b"end"]


def test_a_progress_bar_in_front_of_a_line(log: Path) -> None:
    append(log, b"\r 10%|#   |\r 20%|##  |{'loss': 0.1}\n")
    tail = Tail(log)
    assert lines(tail) == [b"\r 10%|#   |\r 20%|##  |{'loss': 0.1}"]
    tail.close()


def test_a_progress_bar_without_end_does_not_cost_the_line_behind_it(log: Path) -> None:
    tail = Tail(log, max_line=1000)
    for _ in range(200):
        append(log, b"\r 10%|#   |")
        assert lines(tail) == []
    append(log, b"\r{'loss': 0.1}\n")
    assert [line.rpartition(b"\r")[2] for line in lines(tail)] == [b"{'loss': 0.1}"]
    assert tail.skipped_lines == 0
    tail.close()


def test_the_hole_of_a_writer_that_did_not_notice_the_truncation(log: Path) -> None:
    with log.open("wb", buffering=0) as writer:  # not in append mode: it writes on at its old place
        writer.write(b"1\n" * 1000)
        tail = Tail(log)
        assert len(lines(tail)) == 1000
        os.truncate(log, 0)
        writer.write(b"2\n3\n")
        assert lines(tail) == [b"2", b"3"]
    tail.close()


def test_nul_in_a_line_and_the_line_after_it(log: Path) -> None:
    append(log, b"a\0b\n\0\0c\nd\n")
    tail = Tail(log)
    assert lines(tail) == [b"a\0b", b"c", b"d"]
    tail.close()


def test_bytes_that_are_no_text(log: Path) -> None:
    append(log, b"\xff\xfe\x80\n\xb5\xda1\xb2\xbd\n")
    tail = Tail(log)
    assert lines(tail) == [b"\xff\xfe\x80", b"\xb5\xda1\xb2\xbd"]
    tail.close()


def test_a_line_of_ten_megabytes(log: Path) -> None:
    append(log, b"1\n" + b"x" * 10_000_000 + b"\n2\n")
    tail = Tail(log)
    assert [len(line) for line in lines(tail)] == [1, 10_000_000, 1]
    tail.close()


def test_an_endless_line_is_left_out_and_the_file_goes_on(log: Path) -> None:
    append(log, b"1\n" + b"x" * 3_000_000 + b"\n2\n")
    tail = Tail(log, max_line=1_000_000)
    assert lines(tail) == [b"1", b"2"]
    assert tail.skipped_lines == 1
    tail.close()


def test_a_symlink_that_points_to_the_next_run(tmp_path: Path) -> None:
    link = tmp_path / "latest.log"
    for name in ("a", "b"):
        append(tmp_path / name, name.encode() + b"1\n")
    link.symlink_to(tmp_path / "a")
    tail = Tail(link)
    assert lines(tail) == [b"a1"]
    append(tmp_path / "a", b"a2\n")
    link.unlink()
    link.symlink_to(tmp_path / "b")
    assert lines(tail) == [b"a2", b"b1"]
    tail.close()


def test_a_file_that_appears_later_in_a_folder_that_appears_later(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "run" / "train.log")
    assert lines(tail) == []
    (tmp_path / "run").mkdir()
    append(tmp_path / "run" / "train.log", b"1\n")
    assert lines(tail) == [b"1"]
    tail.close()


def test_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    tail = Tail(pipe)
    assert lines(tail) == []
    with pipe.open("wb", buffering=0) as writer:
        writer.write(b"1\nha")
        assert lines(tail) == [b"1"]
        writer.write(b"lf\n")
        assert lines(tail) == [b"half"]
    tail.close()


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    assert lines(tail) == []
    assert "directory" in tail.error


def test_a_descriptor_given_back_loses_nothing(log: Path, tmp_path: Path) -> None:
    append(log, b"1\nha")
    tail = Tail(log)
    assert lines(tail) == [b"1"]
    tail.release()
    assert tail.open_files == 0
    append(log, b"lf\n")
    assert lines(tail) == [b"half"]
    append(log, b"2\nthi")
    assert lines(tail) == [b"2"]
    tail.release()
    append(log, b"rd\n")
    log.rename(tmp_path / "train.log.1")
    append(log, b"4\n")
    assert lines(tail) == [b"third", b"4"]
    tail.close()


def test_the_rotated_files_of_before_are_read_first_where_asked(log: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("train.log.3", "train.log.2", "train.log.1", "train.log")):
        append(tmp_path / name, b"%d\n" % number)
    with gzip.open(tmp_path / "train.log.4.gz", "wb") as packed:
        packed.write(b"older\n")
    os.utime(tmp_path / "train.log.4.gz", ns=(0, 0))
    tail = Tail(log, history=True)
    assert lines(tail) == [b"older", b"0", b"1", b"2", b"3"]
    tail.close()
