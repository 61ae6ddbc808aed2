"""How far every source has been read, and what it gave: kept in the daemon's state file.

Promises: a place is written in one transaction with the items that the lines before it gave, so that a process killed
at any moment neither loses a line nor counts one twice. What is kept is bounded: the newest rows and events of a run,
and the newest samples. A record that cannot be read is left out and counted. Never reads the sources themselves.

    checkpoints.note(run, path, at, item)     # for every item, as it comes
    checkpoints.save(run, intake.places())    # behind a whole poll

Save behind a whole poll: in the middle of one, lines of a file that was rotated away may be on their way. Where a
save fails, what was noted waits for the next one: a place never gets ahead of its items.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from posttrain_watchdog.sources.open_file import Position
from posttrain_watchdog.sources.packed_items import is_heavy, pack, unpack
from posttrain_watchdog.sources.readers import Item
from posttrain_watchdog.state import State, StateError

MOST_LIGHT = 50_000
"""rows and events kept of a run: days of steps; taking them up again is a second's work"""
MOST_HEAVY = 256
"""batches of samples kept of a run: more than the causes look at"""
_SCHEMA = (
    "CREATE TABLE places (run TEXT NOT NULL, path TEXT NOT NULL, place BLOB NOT NULL, PRIMARY KEY (run, path))"
    " WITHOUT ROWID",
    "CREATE TABLE items (id INTEGER PRIMARY KEY, run TEXT NOT NULL, heavy INTEGER NOT NULL, path TEXT NOT NULL,"
    " at REAL NOT NULL, item BLOB NOT NULL)",
    "CREATE INDEX items_by_run ON items (run, heavy, id)",
)
_BLOCK = 1000
_SLACK = 0.1
"""Part of the most that is let grow before the oldest are dropped: not at every save."""


_Noted = tuple[str, bool, str, float, bytes]
"""Run, whether it is heavy, path, time, packed item: a row of `items`."""


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the reading of one source stopped; which of these it has depends on its kind."""

    position: Position | None = None
    """of a file that grows by lines"""
    cursor: str = ""
    """of a journal"""
    last_lines: tuple[bytes, ...] = ()
    """of a source that cannot be read again (journal, FIFO): what its reader must have seen"""
    modified: float = -1.0
    """of a file written as a whole: its time of change when it was read"""
    last_step: int = -1
    offset: int = 0
    """of a binary file that grows"""
    rewritten: int = 0
    """times that it was written anew"""


@dataclass(frozen=True, slots=True)
class Kept:
    """An item and when it was taken in."""

    run: str
    path: str
    at: float
    item: Item


class Checkpoints:
    """The places and items of all runs. All methods raise StateError where SQLite refuses."""

    def __init__(self, state: State, most_light: int = MOST_LIGHT, most_heavy: int = MOST_HEAVY) -> None:
        self.unread = 0
        """records of the state file that could not be read"""
        self._state = state
        self._most = {False: most_light, True: most_heavy}
        self._noted: defaultdict[str, list[_Noted]] = defaultdict(list)
        self._since_saved: Counter[tuple[str, bool]] = Counter()
        self._saved: dict[tuple[str, Path], Place] = {}
        self._since_pruned: Counter[tuple[str, bool]] = Counter()
        state.migrate("checkpoints", _SCHEMA)

    def places(self, run: str) -> dict[Path, Place]:
        """Where the reading of each of the run's sources stopped."""
        with self._state.transaction() as connection:
            rows = connection.execute("SELECT path, place FROM places WHERE run = ?", (run,)).fetchall()
        found = {}
        for path, packed in rows:
            try:
                found[Path(path)] = msgspec.msgpack.decode(packed, type=Place)
            except msgspec.MsgspecError:
                self.unread += 1
        self._saved.update({(run, path): place for path, place in found.items()})
        return found

    def note(self, run: str, path: Path, at: float, item: Item) -> None:
        """Takes note of an item that came at `at`; it is written with the next `save`."""
        packed = pack(item)
        if packed is not None:
            noted, heavy = self._noted[run], is_heavy(item)
            noted.append((run, heavy, str(path), at, packed))
            self._since_saved[run, heavy] += 1
            if self._since_saved[run, heavy] > 2 * self._most[heavy]:
                self._drop_old(run)

    def save(self, run: str, places: Mapping[Path, Place]) -> None:
        """Writes what was noted of the run, and these places; those of other sources stay."""
        changed = {path: place for path, place in places.items() if self._saved.get((run, path)) != place}
        noted = self._noted[run]
        if not changed and not noted:
            return
        try:
            with self._state.transaction() as connection:
                connection.executemany("INSERT INTO items (run, heavy, path, at, item) VALUES (?, ?, ?, ?, ?)", noted)
                connection.executemany(
                    "INSERT OR REPLACE INTO places VALUES (?, ?, ?)",
                    [(run, str(path), msgspec.msgpack.encode(place)) for path, place in changed.items()],
                )
                for heavy, most in self._most.items():
                    self._prune(run, heavy, most)
        except StateError:
            self._drop_old(run)  # they wait for the next save, but not without bound
            raise
        self._saved.update({(run, path): place for path, place in changed.items()})
        noted.clear()
        self._since_saved[run, False] = self._since_saved[run, True] = 0

    def _drop_old(self, run: str) -> None:
        """What would not be kept need not wait for the save: one poll may give millions."""
        noted = self._noted[run]
        old = {id(each) for heavy, most in self._most.items() for each in _of(noted, heavy)[:-most]}
        noted[:] = [each for each in noted if id(each) not in old]
        for heavy in self._most:
            self._since_saved[run, heavy] = len(_of(noted, heavy))

    def items(self) -> Iterator[Kept]:
        """Everything that is kept, in the order in which it came."""
        last = -1
        while True:
            with self._state.transaction() as connection:
                rows = connection.execute(
                    "SELECT id, run, path, at, item FROM items WHERE id > ? ORDER BY id LIMIT ?", (last, _BLOCK)
                ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            for _, run, path, at, packed in rows:
                try:
                    yield Kept(run, path, at, unpack(packed))
                except ValueError:
                    self.unread += 1

    def forget(self, run: str) -> None:
        """Drops all that is kept of a run."""
        with self._state.transaction() as connection:
            connection.execute("DELETE FROM items WHERE run = ?", (run,))
            connection.execute("DELETE FROM places WHERE run = ?", (run,))
        self._saved = {key: place for key, place in self._saved.items() if key[0] != run}

    def _prune(self, run: str, heavy: bool, most: int) -> None:
        self._since_pruned[run, heavy] += len(_of(self._noted[run], heavy))
        if self._since_pruned[run, heavy] <= most * _SLACK:
            return
        self._since_pruned[run, heavy] = 0
        with self._state.transaction() as connection:
            connection.execute(
                "DELETE FROM items WHERE run = ?1 AND heavy = ?2 AND id <= coalesce((SELECT id FROM items"
                " WHERE run = ?1 AND heavy = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3), -1)",
                (run, heavy, most),
            )


def _of(noted: Sequence[_Noted], heavy: bool) -> list[_Noted]:
    return [each for each in noted if each[1] == heavy]
