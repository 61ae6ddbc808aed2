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

    def __init__(self, path: Path, kind: str, start: int = 0) -> None:
        """`start`: what is before it gave its items in a former process, and is read for what it means to the rest."""
        self._path = path
        self._new_reader = _READERS[kind]
        self._reader = self._new_reader()
        self._told = start
        self.offset = 0
        """bytes read"""

    @property
    def dialect(self) -> str:
        """The trainer that its keys belong to; empty while unknown."""
        return self._reader.dialect

    def poll(self) -> Iterator[Row | Event]:
        """What the bytes written since the last call complete. Raises OSError, and ValueError for another format."""
        with self._path.open("rb") as file:
            size = file.seek(0, 2)
            if size < max(self.offset, self._told):
                self._reader, self.offset, self._told = self._new_reader(), 0, 0
            file.seek(self.offset)
            while self.offset < self._told and (data := file.read(min(_CHUNK, self._told - self.offset))):
                self.offset += len(data)
                self._reader.feed(data)
                if self.offset == self._told:
                    self._reader.flush()
            while data := file.read(_CHUNK):
                self.offset += len(data)
                yield from self._reader.feed(data)
        yield from self._reader.flush()  # the last step's keys are complete when a writer has flushed

    def close(self) -> list[Row | Event]:
        """What the file's end completes."""
        return self._reader.close()
