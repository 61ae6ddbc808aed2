"""Binary files of trackers that grow at their end: read from where the last look stopped.

Promises: a file that has become shorter is read anew; what is cut off is waited for. Polls; never sleeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources import kinds, swanlab_file, tensorboard, wandb_file

_CHUNK = 1 << 20


_READERS = {kinds.EVENTS: tensorboard.reader, kinds.WANDB: wandb_file.reader, kinds.SWANLAB: swanlab_file.reader}
"""By each kind of kinds.BINARY."""


class Growing:
    """One file of such a kind."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path = path
        self._new_reader = _READERS[kind]
        self._reader = self._new_reader()
        self._offset = 0

    @property
    def dialect(self) -> str:
        """The trainer that its keys belong to; empty while unknown."""
        return self._reader.dialect

    def poll(self) -> Iterator[Row | Event]:
        """What the bytes written since the last call complete. Raises OSError, and ValueError for another format."""
        with self._path.open("rb") as file:
            file.seek(0, 2)
            if file.tell() < self._offset:
                self._reader, self._offset = self._new_reader(), 0
            file.seek(self._offset)
            while data := file.read(_CHUNK):
                self._offset += len(data)
                yield from self._reader.feed(data)
        yield from self._reader.flush()  # the last step's keys are complete when a writer has flushed

    def close(self) -> list[Row | Event]:
        """What the file's end completes."""
        return self._reader.close()
