"""Follows one growing path and hands out its complete lines: rotation, truncation, replacement, partial lines.

Promises: every byte written to the path, or to a file that was rotated away from it, is handed out once and in
order; a line is handed out when its newline is there, or when `finish` says that no more will come. A file that was
rotated away is read on for some polls, because its writer may still hold it. Polls; sleeps, threads and notifications
are not used. What cannot be read now is tried again at the next poll.

A place is device + inode + a fingerprint of the head + an offset: an inode that is used again for another file,
and a file that was emptied and grew past the old offset, have another head. What was lost from view meanwhile is
looked for beside the path (rotated.py). A file that is emptied and begins with the same bytes again and longer than
before cannot be told from one that grew.
"""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Generator, Iterator
from pathlib import Path

from posttrain_watchdog.sources.open_file import CHUNK, Chunk, Emptied, Identity, OpenFile, Position, digest
from posttrain_watchdog.sources.rotated import Rotated, beside

__all__ = ["MAX_LINE", "Chunk", "Position", "Tail", "is_gzip", "read_whole"]

MAX_LINE = 16 << 20
"""A longer line is left out and counted; the file goes on."""
PATIENCE = 8
"""polls without growth after which a file that is no longer at the path is let go"""
_ROTATIONS = 8
"""as many as can happen while one poll reads"""


Seen = tuple[Identity, int]
"""A file and the time of its last write."""


class Tail:
    """One path. `start` goes on where a former process stopped; else from the beginning of the file.

    `history`: begins with the files that were rotated away before.
    """

    def __init__(
        self, path: Path, start: Position | None = None, max_line: int = MAX_LINE, *, history: bool = False
    ) -> None:
        self.path = path
        self.error = ""
        """why the last poll could not read, empty if it could"""
        self.lost_files = 0
        """times the file was replaced or emptied and its former content could not be found"""
        self.rewritten = 0
        """times the path was written anew, as a resumed run does: emptied or replaced, and nothing rotated away"""
        self._max_line = max_line
        self._history = history
        self._place = start
        self._file = OpenFile(max_line)
        self._former: list[OpenFile] = []
        self._idle: dict[Identity, int] = {}
        self._known: set[Seen] = set()
        """files that lay beside the path when the one at the path was opened; an inode is soon used again"""
        self._skipped = 0
        self._missing = 0
        self._left = 0

    @property
    def lag_bytes(self) -> int:
        """What is written and not read yet."""
        return self._file.lag_bytes

    @property
    def skipped_lines(self) -> int:
        """Lines longer than `max_line`."""
        return self._skipped + sum(f.skipped_lines for f in (self._file, *self._former))

    @property
    def open_files(self) -> int:
        return sum(f.is_open for f in (self._file, *self._former))

    def identities(self) -> set[Identity]:
        """Files that are read under this path, those rotated away included."""
        return {f.identity for f in (self._file, *self._former)} - {(0, 0)}

    def poll(self, budget: int = 64 << 20) -> Iterator[Chunk]:
        """Hands out what was written since the last call, about `budget` bytes at most."""
        self.error = ""
        self._left = budget
        try:
            yield from self._late()
            for _ in range(_ROTATIONS):
                again = yield from self._once()
                if not again or self._left <= 0:
                    break
        except OSError as error:
            self.error = error.strerror or str(error)
            if self._file.is_open and not isinstance(error, PermissionError):
                self.release()  # such as a stale handle of a network file system: opened anew at the next poll

    def finish(self) -> Iterator[Chunk]:
        """Hands out last lines that have no newline: no more will be written."""
        for file in self._former:
            yield from file.finish()
        yield from self._file.finish()

    def position(self) -> Position | None:
        """The position behind the last complete line, None before the file was seen."""
        return self._file.position() if self._file.identity[1] else self._place

    def release(self) -> None:
        """Gives the descriptor back without forgetting the place; the next poll that finds more takes a new one."""
        self._file.release()

    def close(self) -> None:
        """Lets all files go."""
        for file in (self._file, *self._former):
            file.release()

    # --- the path

    def _once(self) -> Generator[Chunk, None, bool]:
        """One look at the path; its value says whether to look again."""
        file = self._file
        try:
            info = self.path.stat()
        except FileNotFoundError:
            yield from self._read(file)
            yield from self._gone()
            return False
        self._missing = 0
        identity = (info.st_dev, info.st_ino)
        if file.is_open and identity == file.identity:
            try:
                yield from self._read(file)
            except Emptied:
                yield from self._emptied()
                return True
            return not self._still(identity)
        if not file.is_open and identity == file.identity and info.st_size == file.offset and file.offset:
            return False  # nothing new; the descriptor stays free
        yield from self._change(info)
        return True

    def _still(self, identity: Identity) -> bool:
        try:
            info = self.path.stat()
        except FileNotFoundError:
            return True  # it may come back, and the old file may still be written to
        return (info.st_dev, info.st_ino) == identity

    def _read(self, file: OpenFile) -> Iterator[Chunk]:
        if not file.is_open:
            return
        before = file.offset
        try:
            for chunk in file.read(self._left):
                self._left -= sum(map(len, chunk.lines))
                yield chunk
        finally:
            if file.offset != before:
                self._idle.pop(file.identity, None)

    def _change(self, info: os.stat_result) -> Iterator[Chunk]:
        """The path is another file than the one in hand, or none is in hand."""
        fresh, old = OpenFile(self._max_line), self._file
        head = fresh.open(self.path, info)  # where this fails the old file stays, and all is tried again
        if old.is_open:
            try:
                yield from self._read(old)
                if old.size() > old.offset:  # the budget is spent: not yet
                    fresh.release()
                    return
            except Emptied:
                yield from self._emptied()
                yield from self._read(old)
        place = old.position() if old.identity[1] else self._place
        first = place is None
        resumed = place is not None and fits(place, fresh.identity, head, info.st_size)
        self._place = None
        if resumed and place is not None:
            if old.identity[1] and not old.is_open:
                # only the descriptor was given back: the half line in hand is still good
                old.open(self.path, info)
                fresh.release()
                return
            fresh.restart(place.offset, head[: place.head_length])
        elif place is not None and stat.S_ISREG(info.st_mode):
            yield from self._between(place, old)
        elif first and self._history:
            for each in beside(self.path):
                yield from self._whole(each, 0)
        self._known = {each.seen for each in beside(self.path)}
        self._file = fresh

    def _between(self, place: Position, old: OpenFile) -> Iterator[Chunk]:
        """The rest of the old file, and files that came and went since it was last seen."""
        siblings = beside(self.path)
        own = own_of(place, siblings)
        if old.is_open:
            self.rewritten += old.links() == 0
            self._retire(old)
        elif own is not None:
            if old.identity[1] and own.packed is False and own.identity == old.identity:
                self._reopen(old, own)
                yield from self._read(old)
                self._retire(old)
            else:
                # the half line before the place was not kept: reading goes on at its beginning
                yield from self._whole(own, place.offset)
        elif old.identity[1]:
            yield from old.finish()
            self._lost()
        else:
            self._lost()
            return
        held = {f.identity for f in self._former}
        for each in _later(own, siblings, self._known, held):
            yield from self._whole(each, 0)

    @staticmethod
    def _reopen(old: OpenFile, own: Rotated) -> None:
        old.open(own.path, own.path.stat())

    def _whole(self, each: Rotated, offset: int) -> Iterator[Chunk]:
        """A rotated file from `offset` on; it is watched for late writes, unless it is packed."""
        file = OpenFile(self._max_line)
        file.restart(offset)
        if each.packed:
            for data in each.content(offset):
                yield from file.take(data)
            yield from file.finish()
            return
        try:
            file.head = file.open(each.path, each.path.stat())
            yield from file.read(each.size - offset)
        except (OSError, Emptied):
            pass
        self._retire(file)

    def _emptied(self) -> Iterator[Chunk]:
        """Emptied in place: what was written before that is in a copy beside it, if there is one."""
        file = self._file
        siblings = beside(self.path)
        place = file.position()
        own = own_of(place, [s for s in siblings if s.identity != file.identity])
        if own is not None:
            for data in own.content(file.offset):
                yield from file.take(data)
            later = _later(own, siblings, self._known, self.identities())
            if later:
                yield from file.finish()
            for each in later:
                for data in each.content(0):
                    yield from file.take(data)
        else:
            yield from file.finish()
            self._lost()
        self._known = {each.seen for each in siblings}
        file.emptied()

    def _lost(self) -> None:
        self.lost_files += 1
        self.rewritten += 1

    # --- files that are no longer at the path

    def _retire(self, file: OpenFile) -> None:
        if file.is_open and file not in self._former:
            self._former.append(file)

    def _late(self) -> Iterator[Chunk]:
        """What is still written to files that were rotated away."""
        for file in list(self._former):
            try:
                yield from self._read(file)
            except (OSError, Emptied):
                self._idle[file.identity] = PATIENCE
            polls = self._idle[file.identity] = self._idle.get(file.identity, 0) + 1
            if polls > PATIENCE:
                yield from self._let_go(file)
                self._former.remove(file)

    def _gone(self) -> Iterator[Chunk]:
        """Nothing is at the path. A deleted file is not held for ever: its blocks stay taken while it is open."""
        file = self._file
        if not file.is_open:
            return
        self._missing += 1
        if self._missing <= PATIENCE:
            return
        deleted = file.links() == 0
        yield from self._let_go(file)
        if deleted:  # its inode can be given to another file
            self.rewritten += 1
            self._file = OpenFile(self._max_line)
            self._place = None
            self._history = False

    def _let_go(self, file: OpenFile) -> Iterator[Chunk]:
        yield from file.finish()
        self._skipped += file.skipped_lines
        file.skipped_lines = 0
        self._idle.pop(file.identity, None)
        file.release()


def fits(place: Position, identity: Identity, head: bytes, size: int) -> bool:
    """Whether the file is the one of this place, with as much in it as was read."""
    return (place.device, place.inode) == identity and size >= place.offset and _same_head(place, head)


def _same_head(place: Position, head: bytes) -> bool:
    return len(head) >= place.head_length and digest(head[: place.head_length]) == place.head


def own_of(place: Position, siblings: list[Rotated]) -> Rotated | None:
    """Where the file of this place is now: renamed, or copied, or packed."""
    for each in siblings:
        if fits(place, each.identity, each.head(), each.size):
            return each
    if not place.head_length:
        return None
    for each in reversed(siblings):
        if (each.packed or each.size >= place.offset) and _same_head(place, each.head()):
            return each
    return None


def _later(own: Rotated | None, siblings: list[Rotated], known: set[Seen], held: set[Identity]) -> list[Rotated]:
    """Files that were written after `own`; without it, those that were not there before."""
    new = [s for s in siblings if s.seen not in known and s.identity not in held]
    return [s for s in new if s.order > own.order] if own is not None else [s for s in new if not s.packed]


def read_whole(path: Path, chunk: int = CHUNK) -> Iterator[list[bytes]]:
    """The complete lines of a finished file, a list a chunk, the last without a newline included; .gz is unpacked.

    Raises OSError (also for a broken gzip).
    """
    opener = gzip.open if is_gzip(path) else open
    rest = b""
    try:
        with opener(path, "rb") as file:
            while data := file.read(chunk):
                data = rest + data
                lines = data.split(b"\n")
                rest = lines.pop()
                if lines:
                    yield lines
    except (EOFError, gzip.BadGzipFile) as error:
        raise OSError(5, f"broken gzip: {error}") from None
    if rest:
        yield [rest]


def is_gzip(path: Path) -> bool:
    """Told by the first two bytes."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"
