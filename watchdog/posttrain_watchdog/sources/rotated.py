"""Files that were rotated away from a path: what they are called, and which of them comes after which.

Promises: looks only beside the path, at names that rotation gives (`NAME.1`, `NAME-20260101`, `NAME.2.gz`). Order is
that of the last write, then of the number. What cannot be read is passed over.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from posttrain_watchdog.sources.open_file import CHUNK, HEAD, Identity

_SUFFIX = re.compile(r"[.-](?:old|prev|bak|\d[\d.T:_-]*)(?:\.gz)?")
_NUMBER = re.compile(r"\.(\d{1,4})(?:\.gz)?$")
_BROKEN = (OSError, EOFError, zlib.error)


@dataclass(frozen=True, slots=True)
class Rotated:
    """One of them. Those with a greater `order` were written later."""

    path: Path
    identity: Identity
    order: tuple[int, int]
    size: int

    @property
    def seen(self) -> tuple[Identity, int]:
        return self.identity, self.order[0]

    @property
    def packed(self) -> bool:
        return self.path.suffix == ".gz"

    def head(self, length: int = HEAD) -> bytes:
        """First bytes of the content, unpacked; empty where it cannot be read."""
        try:
            with gzip.open(self.path) if self.packed else self.path.open("rb") as file:
                return file.read(length)
        except _BROKEN:
            return b""

    def content(self, offset: int) -> Iterator[bytes]:
        """The content from `offset` on, unpacked; ends early where it is damaged."""
        try:
            with gzip.open(self.path) if self.packed else self.path.open("rb") as file:
                file.seek(offset)
                while data := file.read(CHUNK):
                    yield data
        except _BROKEN:
            return


def base_of(path: Path) -> Path | None:
    """The path that this one was rotated away from, by its name; None if the name is not of that kind."""
    for match in _SUFFIX.finditer(path.name):
        if match.start() and match.end() == len(path.name):
            return path.with_name(path.name[: match.start()])
    return None


def beside(path: Path) -> list[Rotated]:
    """All files rotated away from `path`, oldest first."""
    found = []
    try:
        with os.scandir(path.parent) as entries:
            for entry in entries:
                if not entry.name.startswith(path.name) or not _SUFFIX.fullmatch(entry.name, len(path.name)):
                    continue
                try:
                    info = entry.stat()
                except OSError:
                    continue
                number = _NUMBER.search(entry.name)
                order = (info.st_mtime_ns, -int(number.group(1)) if number else 0)
                found.append(Rotated(Path(entry.path), (info.st_dev, info.st_ino), order, info.st_size))
    except OSError:
        return []
    return sorted(found, key=lambda each: each.order)
