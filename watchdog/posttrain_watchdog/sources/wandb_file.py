"""W&B's offline run file (`run-<id>.wandb`): LevelDB's log framing and the history records in it, without wandb.

Promises: bytes may come in any pieces; a record whose checksum is wrong is left out and counted, and reading goes on
with the next block. Format: wandb/sdk/internal/datastore.py and wandb/proto/wandb_internal.proto (wandb 0.16 to 0.23):
seven bytes of head, blocks of 32 KiB, each record with crc32 of type and data.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import msgspec

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.tracked import Tracked
from posttrain_watchdog.sources.trainers.text import Numbers, number
from posttrain_watchdog.sources.wire import fields

MAGIC = b":W&B"
_HEAD = 7
_BLOCK = 32 << 10
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class RunFile:
    """One file, fed as it grows."""

    def __init__(self) -> None:
        self.damaged = 0
        """records left out"""
        self._rest = b""
        self._place = 0
        self._parts: list[bytes] = []
        self._tracked = Tracked()

    @property
    def dialect(self) -> str:
        return self._tracked.trainer

    def feed(self, data: bytes) -> list[Row | Event]:
        """Rows of the history records that the data completes."""
        found: list[Row | Event] = []
        for record in self._records(data):
            try:
                found += self._take(record)
            except (ValueError, UnicodeError):
                self.damaged += 1
        return found

    def close(self) -> list[Row | Event]:
        return self._tracked.last()

    def _records(self, data: bytes) -> Iterator[bytes]:
        self._rest += data
        at = 0
        if self._place == 0:
            if len(self._rest) < _HEAD:
                return
            if not self._rest.startswith(MAGIC):
                raise ValueError("byte 0: expected a W&B run file")
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
                if kind or length or crc:
                    self.damaged += 1
                if len(self._rest) - at < left:
                    break
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

    def _take(self, record: bytes) -> list[Row | Event]:
        found: list[Row | Event] = []
        for field, value in fields(record):
            if field == 2 and isinstance(value, bytes):
                found += self._history(value)
        return found

    def _history(self, message: bytes) -> list[Row | Event]:
        numbers: Numbers = {}
        step: int | None = None
        for field, value in fields(message):
            if field == 1 and isinstance(value, bytes):
                key, told = _item(value)
                if key:
                    numbers[key] = told
            elif field == 2 and isinstance(value, bytes):
                step = next((v for n, v in fields(value) if n == 1 and isinstance(v, int)), step)
        told_step = numbers.pop("_step", None)
        if step is None and told_step is not None:
            step = int(told_step)
        time = numbers.get("_timestamp")
        return self._tracked.rows(numbers, step, time) if len(numbers) > 2 else []


def _item(message: bytes) -> tuple[str, float | None]:
    key, nested, text = "", [], ""
    for field, value in fields(message):
        if not isinstance(value, bytes):
            continue
        if field == 1:
            key = value.decode("utf-8")
        elif field == 2:
            nested.append(value.decode("utf-8"))
        elif field == 16 and len(value) < 1 << 16:
            text = value.decode("utf-8", "replace")
    if not text or text[0] in "[{":
        return key or "/".join(nested), None
    try:
        plain = msgspec.json.decode(text)
    except msgspec.DecodeError:
        plain = text
    if isinstance(plain, (bool, int, float)):
        return key or "/".join(nested), float(plain)
    return key or "/".join(nested), number(plain) if isinstance(plain, str) and len(plain) < 64 else None
