"""How far every followed file has been read, kept in the daemon's state file.

Promises: a place is written in one transaction with whatever was made of the lines before it, so that a process
killed at any moment neither loses a line nor counts one twice. A place is device + inode + a fingerprint of the head +
an offset (tail.py): a file that took another's inode is not mistaken for it. Never reads the files themselves.

    with checkpoints.transaction() as connection:
        for chunk in tail.poll():
            ...                       # what the lines give is written through the same connection
        checkpoints.save(run, {tail.path: tail.position()})

Save behind a whole poll: in the middle of one, lines of a file that was rotated away may be on their way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from posttrain_watchdog.sources.tail import Position
from posttrain_watchdog.state import State

_SCHEMA = (
    """CREATE TABLE positions (
        run TEXT NOT NULL, path TEXT NOT NULL, device TEXT NOT NULL, inode TEXT NOT NULL,
        head TEXT NOT NULL, head_length INTEGER NOT NULL, offset INTEGER NOT NULL,
        PRIMARY KEY (run, path)
    ) WITHOUT ROWID""",
)
# device and inode are texts: both may need 64 bits without a sign, and SQLite's integers have one


class Checkpoints:
    """The places of all runs. Raises StateError where SQLite refuses."""

    def __init__(self, state: State) -> None:
        self._state = state
        state.migrate("positions", _SCHEMA)

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """All or nothing of what is written inside, places and readings together."""
        return self._state.transaction()

    def load(self, run: str) -> dict[Path, Position]:
        """Where the reading of each of the run's files stopped."""
        with self.transaction() as connection:
            rows = connection.execute(
                "SELECT path, device, inode, head, head_length, offset FROM positions WHERE run = ?", (run,)
            ).fetchall()
        return {
            Path(path): Position(int(device), int(inode), head, head_length, offset)
            for path, device, inode, head, head_length, offset in rows
        }

    def save(self, run: str, positions: Mapping[Path, Position | None]) -> None:
        """Writes these places; those of other files stay. None (a file not seen yet) is left out."""
        rows = [
            (run, str(path), str(p.device), str(p.inode), p.head, p.head_length, p.offset)
            for path, p in positions.items()
            if p is not None
        ]
        with self.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def forget(self, run: str, paths: Iterable[Path]) -> None:
        """Drops the places of files that are followed no more."""
        with self.transaction() as connection:
            connection.executemany("DELETE FROM positions WHERE run = ? AND path = ?", [(run, str(p)) for p in paths])
