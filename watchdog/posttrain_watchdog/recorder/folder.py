"""A folder of dump files that never grows beyond its bound.

Promises: a line is in the file whole or not at all, also when the disk is full; files are numbered and never renamed,
so that who follows them loses nothing; a process that starts again begins a new file; beyond `keep` files the oldest
goes. Never touches what it did not write itself (other names, other ranks). Raises OSError.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


class DumpFolder:
    """The files of one rank: at most `keep` of `max_bytes` each."""

    def __init__(self, folder: Path, rank: int, max_bytes: int, keep: int) -> None:
        self.path: Path | None = None
        """the file that is being written"""
        self.skipped = 0
        """lines that alone are longer than a file may be"""
        self._folder = folder
        self._rank = rank
        self._max_bytes = max(1, max_bytes)
        self._keep = max(1, keep)
        self._name = re.compile(rf"tokens-r{rank}-(\d{{6,}})\.jsonl")
        self._descriptor = -1
        self._size = 0
        self._process = 0

    def append(self, lines: Sequence[bytes]) -> int:
        """Writes lines that end in a newline, each in one file; returns how many."""
        block: list[bytes] = []
        length = written = 0
        for line in lines:
            if len(line) > self._max_bytes:
                self.skipped += 1
                continue
            if (
                self._descriptor < 0
                or os.getpid() != self._process
                or self._size + length + len(line) > self._max_bytes
            ):
                written += self._write(block)
                block, length = [], 0
                self._next()
            block.append(line)
            length += len(line)
        return written + self._write(block)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)

    def _write(self, block: list[bytes]) -> int:
        if not block:
            return 0
        data = memoryview(b"".join(block))
        done = 0
        try:
            while done < len(data):
                done += os.write(self._descriptor, data[done:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += done
        return len(block)

    def _next(self) -> None:
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        mine = self._mine()
        number = mine[-1][0] + 1 if mine else 1
        while self._descriptor < 0:
            path = self._folder / f"tokens-r{self._rank}-{number:06d}.jsonl"
            with suppress(FileExistsError):  # another process of this rank was faster
                self._descriptor = os.open(
                    path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666
                )
                self.path = path
            number += 1
        self._size, self._process = 0, os.getpid()
        for _, path in mine[: max(0, len(mine) + 1 - self._keep)]:
            with suppress(FileNotFoundError):
                path.unlink()

    def _mine(self) -> list[tuple[int, Path]]:
        found = [(int(m[1]), p) for p in self._folder.iterdir() if (m := self._name.fullmatch(p.name))]
        return sorted(found)
