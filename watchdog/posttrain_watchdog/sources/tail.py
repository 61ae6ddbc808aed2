"""Follows one growing file and hands out its complete lines: rotation, truncation, replacement, partial lines.

Promises: every byte written to the path, or to the file that was rotated away from it, is handed out once and in
order; a line is handed out when its newline is there, or when `finish` says that no more will come. Polls; sleeps,
threads and notifications are not used. What cannot be read now is tried again at the next poll.

A position is device + inode + a fingerprint of the head + an offset: an inode that is used again for another file,
and a file that was emptied and grew past the old offset, have another head.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

HEAD = 256
"""Bytes that make the fingerprint."""
CHUNK = 1 << 20
MAX_LINE = 16 << 20
"""A longer line is left out and counted; the file goes on."""


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


class Tail:
    """One path. `start` goes on where a former process stopped; else from the beginning of the file."""

    def __init__(self, path: Path, start: Position | None = None, max_line: int = MAX_LINE) -> None:
        self.path = path
        self.error = ""
        """why the last poll could not read, empty if it could"""
        self.skipped_lines = 0
        """lines longer than `max_line`"""
        self.lost_files = 0
        """times the file was replaced and its former content could not be found"""
        self.lag_bytes = 0
        self._start = start
        self._max_line = max_line
        self._file: BufferedIOBase | None = None
        self._identity = (0, 0)
        self._head = b""
        self._offset = 0
        self._partial: list[bytes] = []
        self._partial_length = 0
        self._too_long = False

    def poll(self, budget: int = 64 << 20) -> Iterator[Chunk]:
        """Hands out what was written since the last call, `budget` bytes at most."""
        self.error = ""
        left = budget
        try:
            if self._file is None:
                self._open(self.path)
            for _ in range(8):  # as many rotations as can have happened between two polls
                for chunk in self._read(left):
                    left -= sum(len(line) + 1 for line in chunk.lines)
                    yield chunk
                    if left <= 0:
                        return
                if not self._replaced():
                    break
        except OSError as error:
            self.error = error.strerror or str(error)
            self._close()

    def finish(self) -> Iterator[Chunk]:
        """Hands out a last line that has no newline: no more will be written."""
        line = b"".join(self._partial)
        start = self._offset - len(line)
        self._drop_partial()
        if line:
            yield Chunk([line], start)

    def position(self) -> Position | None:
        """The position behind the last complete line, None before the file was seen."""
        if not self._identity[1]:
            return self._start
        offset = self._offset - self._partial_length
        head = hashlib.sha256(self._head).hexdigest()
        return Position(*self._identity, head, len(self._head), offset)

    def close(self) -> None:
        """Lets the file go."""
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def _open(self, path: Path) -> None:
        info = path.stat()
        if stat.S_ISDIR(info.st_mode):
            raise IsADirectoryError(21, "is a directory, expected a file")
        flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_NONBLOCK if stat.S_ISFIFO(info.st_mode) else 0)
        file = os.fdopen(os.open(path, flags), "rb", buffering=0)
        info = os.fstat(file.fileno())
        identity, former = (info.st_dev, info.st_ino), self._identity
        if stat.S_ISFIFO(info.st_mode):
            self._file, self._identity = file, identity  # type: ignore[assignment]
            return
        head = file.read(HEAD) or b""
        file.seek(0)
        offset = 0
        start, self._start = self._start, None
        if start is not None:
            offset = self._resume(start, identity, head, info.st_size)
        elif former == identity and self._head and head.startswith(self._head) and info.st_size >= self._offset:
            offset = self._offset - self._partial_length  # it was only out of reach for a while
        self._drop_partial()
        file.seek(offset)
        self._file, self._identity, self._head, self._offset = file, identity, head, offset  # type: ignore[assignment]

    @staticmethod
    def _resume(start: Position, identity: tuple[int, int], head: bytes, size: int) -> int:
        same_head = (
            hashlib.sha256(head[: start.head_length]).hexdigest() == start.head and len(head) >= start.head_length
        )
        same_file = (start.device, start.inode) == identity
        return start.offset if same_file and same_head and size >= start.offset else 0

    def _read(self, budget: int) -> Iterator[Chunk]:
        if self._file is None:
            return
        while budget > 0:
            if self._truncated():
                self._drop_partial()
                self._file.seek(0)
                self._offset, self._head = 0, b""
            data = self._file.read(min(CHUNK, budget))
            if not data:
                break
            if len(self._head) < HEAD:
                self._head += data[: HEAD - len(self._head)] if self._offset == len(self._head) else b""
            budget -= len(data)
            chunk = self._split(data)
            if chunk is not None:
                yield chunk

    def _truncated(self) -> bool:
        """Emptied in place: shorter than what was read, or with another head."""
        if self._file is None:
            return False
        descriptor = self._file.fileno()
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            return False
        self.lag_bytes = max(0, info.st_size - self._offset)
        if info.st_size < self._offset:
            return True
        return bool(self._head) and os.pread(descriptor, len(self._head), 0) != self._head

    def _split(self, data: bytes) -> Chunk | None:
        begin = self._offset - self._partial_length
        self._offset += len(data)
        if b"\n" not in data:
            self._keep(data)
            return None
        first, _, rest = data.partition(b"\n")
        whole, newline, tail = rest.rpartition(b"\n")
        lines: list[bytes] = []
        if self._too_long or self._partial_length + len(first) > self._max_line:
            self.skipped_lines += 1
        else:
            lines.append(b"".join((*self._partial, first)))
        self._drop_partial()
        if newline:
            lines += whole.split(b"\n")
        self._keep(tail)
        return Chunk(lines, begin)

    def _keep(self, data: bytes) -> None:
        self._partial_length += len(data)
        if self._partial_length > self._max_line:
            self._too_long = True
            self._partial.clear()
        elif data:
            self._partial.append(data)

    def _drop_partial(self) -> None:
        self._partial, self._partial_length, self._too_long = [], 0, False

    def _replaced(self) -> bool:
        """Whether the path is another file now; then the old one has been read to its end and the new one is open."""
        try:
            info = self.path.stat()
        except FileNotFoundError:
            return False  # it may come back, and the old file may still be written to
        if (info.st_dev, info.st_ino) == self._identity:
            return False
        if self._file is not None and self._partial:
            rest = self._file.read(CHUNK)
            if rest:
                self._partial.append(rest)
        self._close()
        self._identity = (0, 0)
        self._head = b""
        self._offset = 0
        self._open(self.path)
        return True


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
