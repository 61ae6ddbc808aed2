"""A tracker's binary file as it grows: frames in, rows out. What frames it and what its records hold is given.

Promises: bytes may come in any pieces; a record that cannot be read is left out and counted, and hides no other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Protocol

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.tracked import Tracked

Rows = list[Row | Event]


class Frames(Protocol):
    """Cuts bytes into whole records, whose checksums are right."""

    damaged: int
    """records left out"""

    def feed(self, data: bytes) -> Iterator[bytes]: ...


class TrackerFile:
    """One file, fed as it grows. `take` makes rows of a record, and raises ValueError for one that it cannot read."""

    def __init__(self, frames: Frames, take: Callable[[bytes, Tracked], Rows]) -> None:
        self.frames = frames
        self._take = take
        self._tracked = Tracked()
        self._unreadable = 0

    @property
    def dialect(self) -> str:
        """The trainer that the file's keys belong to; empty while unknown."""
        return self._tracked.trainer

    @property
    def damaged(self) -> int:
        """Records left out because their checksum or their content was wrong."""
        return self.frames.damaged + self._unreadable

    def feed(self, data: bytes) -> Rows:
        """Rows of the steps that the data completes. Raises ValueError for a file of another format."""
        found: Rows = []
        for record in self.frames.feed(data):
            try:
                found += self._take(record, self._tracked)
            except (ValueError, struct.error):
                self._unreadable += 1
        return found

    def flush(self) -> Rows:
        """The row of the last step, when nothing more of it came for a while."""
        return self._tracked.flush()

    def close(self) -> Rows:
        """What the file's end completes."""
        return self._tracked.last()
