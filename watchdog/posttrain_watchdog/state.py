"""What must survive a restart: one SQLite file, small and shared by those who have something to keep.

Promises: what is written is written whole or not at all (one transaction); a file that is damaged is set aside
under another name and begun anew rather than ending the program; every failure is a StateError. A crash of the
process loses nothing that was committed; a power failure may lose the last commits, never their order (WAL,
synchronous=NORMAL). Never reads the clock; knows nothing of what is kept.

A part of the program keeps JSON under (area, key) with `put`, `replace` and `items`, or brings tables of its own with
`migrate`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

_SCHEMA = (
    """CREATE TABLE kept (area TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (area, key))
       WITHOUT ROWID""",
)
_BUSY_SECONDS = 5.0


class StateError(OSError):
    """State that cannot be read or written; the text says which file and why."""


class State:
    """One open file. Belongs to the thread that opened it."""

    def __init__(self, path: Path | None = None) -> None:
        """None keeps everything in memory. Raises StateError where no file can be made at all."""
        self.path = path
        self.set_aside: Path | None = None
        """where a damaged file was put when this one was begun"""
        self._depth = 0
        try:
            self._connection = self._open()
        except sqlite3.DatabaseError as error:
            if path is None or isinstance(error, sqlite3.OperationalError):
                raise StateError(f"{path}: {error}") from None
            self.set_aside = _set_aside(path)
            try:
                self._connection = self._open()
            except sqlite3.Error as again:
                raise StateError(f"{path}: {again}") from None
        except OSError as error:
            raise StateError(f"{path}: {error.strerror or error}") from None

    def _open(self) -> sqlite3.Connection:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                self.path.touch(mode=0o600)
        connection = sqlite3.connect(self.path or ":memory:", timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("CREATE TABLE IF NOT EXISTS parts (part TEXT PRIMARY KEY, version INTEGER NOT NULL)")
            found = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found is None or found[0] != "ok":
                raise sqlite3.DatabaseError(f"damaged: {found[0] if found else 'no answer'}")
            self._connection = connection
            self.migrate("kept", _SCHEMA)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; nested ones belong to the outermost. Raises StateError for what SQLite refuses."""
        if self._depth:
            yield self._connection
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise StateError(f"{self.path}: {error}") from None
        self._depth = 1
        try:
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise StateError(f"{self.path}: {error}") from None
            raise
        finally:
            self._depth = 0

    def migrate(self, part: str, steps: Sequence[str]) -> None:
        """Brings the tables of one part to the newest schema: step n leads from version n to n+1.

        Raises StateError for a file that a newer program wrote.
        """
        with self.transaction() as connection:
            row = connection.execute("SELECT version FROM parts WHERE part = ?", (part,)).fetchone()
            version = row[0] if row else 0
            if version > len(steps):
                raise StateError(f"{self.path}: {part} was written by a newer version ({version} > {len(steps)})")
            for step in steps[version:]:
                connection.execute(step)
            connection.execute("INSERT OR REPLACE INTO parts VALUES (?, ?)", (part, len(steps)))

    # --- JSON by area and key

    def get(self, area: str, key: str) -> Any:
        """The value, None where there is none."""
        with self.transaction() as connection:
            row = connection.execute("SELECT value FROM kept WHERE area = ? AND key = ?", (area, key)).fetchone()
        return None if row is None else orjson.loads(row[0])

    def items(self, area: str) -> dict[str, Any]:
        with self.transaction() as connection:
            rows = connection.execute("SELECT key, value FROM kept WHERE area = ? ORDER BY key", (area,)).fetchall()
        return {key: orjson.loads(value) for key, value in rows}

    def put(self, area: str, values: Mapping[str, Any]) -> None:
        """Writes these keys; others of the area stay."""
        rows = [(area, key, orjson.dumps(value)) for key, value in values.items()]
        with self.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)

    def delete(self, area: str, keys: Sequence[str]) -> None:
        with self.transaction() as connection:
            connection.executemany("DELETE FROM kept WHERE area = ? AND key = ?", [(area, key) for key in keys])

    def replace(self, area: str, values: Mapping[str, Any]) -> None:
        """Makes these the only keys of the area. Writes only what changed."""
        wanted = {key: orjson.dumps(value) for key, value in values.items()}
        with self.transaction() as connection:
            known = dict(connection.execute("SELECT key, value FROM kept WHERE area = ?", (area,)).fetchall())
            changed = [(area, key, value) for key, value in wanted.items() if known.get(key) != value]
            connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", changed)
            gone = [(area, key) for key in known if key not in wanted]
            connection.executemany("DELETE FROM kept WHERE area = ? AND key = ?", gone)


def _set_aside(path: Path) -> Path:
    """Renames a damaged file and its journals, so that a person can look at it."""
    place = path.with_name(path.name + ".damaged")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.replace(place.with_name(place.name + suffix))
    return place
