"""State is written whole or not at all, and a damaged file ends nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from posttrain_watchdog.state import State, StateError


def test_what_was_kept_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.sqlite"
    first = State(path)
    first.put("a", {"x": {"n": 1.5}, "y": None})
    first.put("b", {"x": 2})
    first.close()
    again = State(path)
    assert again.items("a") == {"x": {"n": 1.5}, "y": None}
    assert again.get("b", "x") == 2
    assert again.get("b", "none") is None
    assert path.stat().st_mode & 0o077 == 0, "alerts are nobody else's business"
    again.close()


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    state = State(tmp_path / "s")
    state.replace("a", {"x": 1, "y": 2})
    with pytest.raises(RuntimeError), state.transaction():
        state.replace("a", {"z": 3})
        state.put("b", {"k": 1})
        raise RuntimeError
    assert state.items("a") == {"x": 1, "y": 2}
    assert state.items("b") == {}
    state.replace("a", {"y": 5})
    assert state.items("a") == {"y": 5}
    state.close()


@pytest.mark.parametrize(
    "damage", [b"not a database at all, but long enough to look like one" * 40, b"SQLite format 3\0" * 300]
)
def test_a_damaged_file_is_set_aside_and_begun_anew(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "s"
    path.write_bytes(damage)
    state = State(path)
    assert state.set_aside == tmp_path / "s.damaged"
    assert state.set_aside.read_bytes() == damage
    state.put("a", {"x": 1})
    assert state.items("a") == {"x": 1}
    state.close()


def test_pages_that_rotted_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    state = State(path)
    state.put("a", {str(i): "v" * 500 for i in range(200)})
    state.close()
    data = bytearray(path.read_bytes())
    data[8192:40960] = b"\xff" * 32768
    path.write_bytes(bytes(data))
    again = State(path)
    assert again.set_aside is not None
    assert again.items("a") == {}
    again.close()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="file"):
        State(tmp_path / "file" / "s")
    with pytest.raises(StateError):
        State(tmp_path)


def test_tables_of_a_part_grow_step_by_step(tmp_path: Path) -> None:
    path = tmp_path / "s"
    steps = ["CREATE TABLE t (a INTEGER)", "ALTER TABLE t ADD COLUMN b INTEGER"]
    state = State(path)
    state.migrate("t", steps[:1])
    with state.transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    state.migrate("t", steps)
    state.migrate("t", steps)
    with state.transaction() as connection:
        assert connection.execute("SELECT a, b FROM t").fetchall() == [(1, None)]
    with pytest.raises(StateError, match="newer version"):
        state.migrate("t", steps[:1])
    state.close()


def test_what_sqlite_refuses_is_a_state_error(tmp_path: Path) -> None:
    state = State(tmp_path / "s")
    other = sqlite3.connect(tmp_path / "s", timeout=0)
    with pytest.raises(StateError), state.transaction() as connection:
        connection.execute("INSERT INTO nowhere VALUES (1)")
    state.put("a", {"x": 1})
    other.close()
    state.close()
