"""LevelDB's record log, the framing of several trackers' files: whole records out of bytes that come in any pieces.

Promises: a record whose checksum is wrong is left out and counted, and reading goes on with the next one; where a
length cannot be trusted, with the next block. Pure. Format: a head of seven bytes (four of them tell the program, the
last one its version), blocks of 32 KiB, each record or part of one with crc32 of type and data, its length and type
(wandb/sdk/internal/datastore.py, wandb 0.16 to 0.31; swanlab/sdk/internal/core_python/store, swanlab 0.6 to 0.10).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

_HEAD = 7
_BLOCK = 32 << 10
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class RecordLog:
    """One file, fed as it grows. `magic` is what its head begins with."""

    def __init__(self, magic: bytes) -> None:
        self.damaged = 0
        """records left out"""
        self._magic = magic
        self._rest = b""
        self._place = 0
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The records that the data completes. Raises ValueError for a file with another head."""
        self._rest += data
        at = 0
        if self._place == 0:
            if len(self._rest) < _HEAD:
                return
            if not self._rest.startswith(self._magic):
                raise ValueError(f"byte 0: expected {self._magic.decode()}")
            at = _HEAD
        while True:
            left = _BLOCK - (self._place + at) % _BLOCK
            if left < _HEAD:
                if len(self._rest) - at < left:
                    break
                at += left
                continue
            if len(self._rest) - at < _HEAD:
                break
            crc = int.from_bytes(self._rest[at : at + 4], "little")
            length = int.from_bytes(self._rest[at + 4 : at + 6], "little")
            kind = self._rest[at + 6]
            if length > left - _HEAD or kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
                if len(self._rest) - at < left:
                    break
                if kind or length or crc:
                    self.damaged += 1
                at += left
                continue
            if len(self._rest) - at < _HEAD + length:
                break
            body = self._rest[at + _HEAD : at + _HEAD + length]
            at += _HEAD + length
            if zlib.crc32(bytes([kind]) + body) != crc:
                self.damaged += 1
                self._parts = []
                continue
            if kind in (_FULL, _FIRST):
                self._parts = []
            self._parts.append(body)
            if kind in (_FULL, _LAST):
                yield b"".join(self._parts)
                self._parts = []
        self._place += at
        self._rest = self._rest[at:]
