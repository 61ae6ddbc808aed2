"""One open file: complete lines from where reading stands, bounded lines, and its fingerprint.

Promises: a line is handed out once, when its newline is there. Bytes are left as they are, but for NULs at the start
of a line (the hole that a writer leaves in a file that was emptied under it). A line beyond `max_line` is left out
and counted; a progress bar without end, which only returns its carriage, is not: what follows its last return is kept.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

HEAD = 256
"""Bytes that make the fingerprint."""
CHUNK = 1 << 20
Identity = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading stopped; enough to go on after a restart."""

    device: int
    inode: int
    head: str
    head_length: int
    offset: int


@dataclass(slots=True)
class Chunk:
    """Complete lines without their newline, and where the first of them began in the file."""

    lines: list[bytes]
    offset: int
    time: float | None = None
    """seconds since the epoch at which they were written, where the source itself says so"""


class Emptied(Exception):
    """The file was emptied in place, and may have grown again since."""


class OpenFile:
    """A file and what of it was read. Without a descriptor (`release`) it is a place to go on from."""

    def __init__(self, max_line: int) -> None:
        self.identity: Identity = (0, 0)
        self.head = b""
        self.offset = 0
        self.skipped_lines = 0
        self.lag_bytes = 0
        self._max_line = max_line
        self._descriptor = -1
        self._regular = True
        self._partial: list[bytes] = []
        self._held = 0
        self._raw = 0
        """bytes of the file behind the last newline, held or not"""
        self._too_long = False

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    def open(self, path: Path, info: os.stat_result) -> bytes:
        """Takes a descriptor; the head of what is there. Raises OSError. Keeps the offset."""
        if stat.S_ISDIR(info.st_mode):
            raise IsADirectoryError(21, "is a directory, expected a file")
        pipe = stat.S_ISFIFO(info.st_mode)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (os.O_NONBLOCK if pipe else 0))
        try:
            found = os.fstat(descriptor)
            self._regular = stat.S_ISREG(found.st_mode)
            head = os.pread(descriptor, HEAD, 0) if self._regular else b""
        except OSError:
            os.close(descriptor)
            raise
        self.release()
        self._descriptor, self.identity = descriptor, (found.st_dev, found.st_ino)
        return head

    def release(self) -> None:
        """Gives the descriptor back; reading can go on after another `open`."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)

    def restart(self, offset: int = 0, head: bytes = b"") -> None:
        """Goes on at `offset`, with nothing of a line in hand."""
        self.offset, self.head = offset, head
        self._drop()

    def emptied(self) -> None:
        """The file begins anew under the same name; a half line in hand goes on there."""
        self.offset, self.head, self._raw = 0, b"", 0

    def read(self, budget: int) -> Iterator[Chunk]:
        """What is there, `budget` bytes at most. Raises OSError, and Emptied before anything of the new content."""
        while budget > 0:
            self._check()
            data = self._next(min(CHUNK, budget))
            if not data:
                return
            self._check()
            if len(self.head) < HEAD and self.offset == len(self.head):
                self.head += data[: HEAD - len(self.head)]
            budget -= len(data)
            yield from self.take(data)

    def take(self, data: bytes) -> Iterator[Chunk]:
        """The lines that these next bytes of the file complete."""
        begin = self.offset - self._raw
        self.offset += len(data)
        first, newline, rest = data.partition(b"\n")
        if not newline:
            self._keep(data)
            return
        self._keep(first, extra=1)
        lines = self._line()
        whole, newline, tail = rest.rpartition(b"\n")
        if newline:
            lines += whole.split(b"\n")
        self._keep(tail)
        if b"\0" in data:
            lines = [line.lstrip(b"\0") for line in lines]
        if lines:
            yield Chunk(lines, begin)

    def finish(self) -> Iterator[Chunk]:
        """A last line that has no newline: no more will be written."""
        begin, raw = self.offset - self._raw, self._raw
        lines = self._line() if raw else []
        if lines and lines[0]:
            yield Chunk(lines, begin)

    def position(self) -> Position:
        """The position behind the last complete line."""
        return Position(*self.identity, digest(self.head), len(self.head), self.offset - self._raw)

    def size(self) -> int:
        """Bytes in the file now; -1 without a descriptor or for what is no regular file."""
        return os.fstat(self._descriptor).st_size if self.is_open and self._regular else -1

    def links(self) -> int:
        """Names that the file still has."""
        return os.fstat(self._descriptor).st_nlink if self.is_open else 0

    def _next(self, most: int) -> bytes:
        if self._regular:
            return os.pread(self._descriptor, most, self.offset)
        try:
            return os.read(self._descriptor, most)
        except BlockingIOError:
            return b""

    def _check(self) -> None:
        if not self._regular:
            return
        size = os.fstat(self._descriptor).st_size
        self.lag_bytes = max(0, size - self.offset)
        if size < self.offset or (self.head and os.pread(self._descriptor, len(self.head), 0) != self.head):
            raise Emptied

    def _keep(self, data: bytes, extra: int = 0) -> None:
        self._raw += len(data) + extra
        if not self._partial:
            data = data.lstrip(b"\0")
        if self._too_long:
            if b"\r" not in data:
                return
            self._too_long = False
        if not data:
            return
        self._partial.append(data)
        self._held += len(data)
        if self._held > self._max_line:
            _, returned, last = b"".join(self._partial).rpartition(b"\r")
            self._partial, self._held = ([last], len(last)) if returned else ([], 0)
            self._too_long = not returned or len(last) > self._max_line

    def _line(self) -> list[bytes]:
        """The line in hand, none if it was too long."""
        lines = [b"".join(self._partial)]
        if self._too_long:
            self.skipped_lines += 1
            lines = []
        self._drop()
        return lines

    def _drop(self) -> None:
        self._partial, self._held, self._raw, self._too_long = [], 0, 0, False


def digest(head: bytes) -> str:
    """The fingerprint of a file's first bytes."""
    return hashlib.sha256(head).hexdigest()
