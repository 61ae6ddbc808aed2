"""Protocol-buffer messages as bare fields, and checksums of record files: as much as two file formats need.

Pure. A message that is cut short or malformed raises ValueError; unknown fields are handed out like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

Value = int | bytes


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """(field number, value): numbers for varints, the raw bytes of fixed-size and length-delimited ones."""
    place, end = 0, len(message)
    while place < end:
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        if kind == 2:
            length, place = _varint(message, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind} at byte {place}")
        if place + length > end:
            raise ValueError(f"field {key >> 3} is cut short at byte {place}")
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(message) and shift < 70:
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    raise ValueError(f"number is cut short at byte {place}")


@cache
def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


def masked_crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) of the data, rotated and shifted as TFRecord files store it."""
    table, value = _crc_table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 255] ^ (value >> 8)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF
