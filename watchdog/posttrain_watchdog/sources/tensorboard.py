"""TensorBoard event files: TFRecord framing and the scalar summaries in it, without TensorFlow.

Promises: bytes may come in any pieces, as the file grows; every record's checksums are checked, a damaged record is
left out and counted, and reading goes on behind it as long as its length can be trusted. Tags of one step make one row.
Format: tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto, as TensorBoard 2.21's own writer
(the one of TensorFlow 2), torch 2.13 and tensorboardX 2.6 write it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.tracked import Tracked
from posttrain_watchdog.sources.tracker_file import TrackerFile
from posttrain_watchdog.sources.wire import fields, masked_crc32c

_LONGEST_CHECKED = 1 << 16
_LONGEST = 1 << 30
_DT_FLOAT, _DT_DOUBLE, _DT_INT32, _DT_INT64 = 1, 2, 3, 9
_TENSOR = {_DT_FLOAT: "f", _DT_DOUBLE: "d", _DT_INT32: "i", _DT_INT64: "q"}


class TFRecords:
    """The framing: a length, its checksum, the record and the record's checksum."""

    def __init__(self) -> None:
        self.damaged = 0
        self.broken = False
        """a length could not be trusted: nothing behind it is read"""
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The records that the data completes; longer ones than any scalar's are left out."""
        self._rest += data
        place = 0
        while not self.broken and len(self._rest) - place >= 12:
            head = self._rest[place : place + 8]
            length, crc = struct.unpack_from("<QI", self._rest, place)
            if length > _LONGEST or masked_crc32c(head) != crc:
                self.broken, self.damaged = True, self.damaged + 1
                break
            end = place + 12 + length + 4
            if len(self._rest) < end:
                break
            record = self._rest[place + 12 : end - 4]
            place = end
            if length <= _LONGEST_CHECKED:
                if masked_crc32c(record) != int.from_bytes(self._rest[end - 4 : end], "little"):
                    self.damaged += 1
                    continue
                yield record
        self._rest = b"" if self.broken else self._rest[place:]


def reader() -> TrackerFile:
    """Reads one such file."""
    return TrackerFile(TFRecords(), _take)


def _take(record: bytes, tracked: Tracked) -> list[Row | Event]:
    time, step, values = 0.0, 0, []
    for number, value in fields(record):
        if number == 1 and isinstance(value, bytes):
            (time,) = struct.unpack("<d", value)
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            values += [v for n, v in fields(value) if n == 1 and isinstance(v, bytes)]
    scalars = [pair for value in values if (pair := _scalar(value)) is not None]
    return tracked.gather(scalars, step, time) if scalars and step < 1 << 63 else []


def _scalar(message: bytes) -> tuple[str, float] | None:
    """(tag, number) of one Summary.Value; None for pictures, histograms and texts."""
    tag, number = "", None
    for field, value in fields(message):
        if not isinstance(value, bytes):
            continue
        if field == 1:
            tag = value.decode("utf-8")
        elif field == 2 and len(value) == 4:
            (number,) = struct.unpack("<f", value)
        elif field == 8:
            number = _tensor(value)
    return (tag, number) if tag and number is not None else None


def _tensor(message: bytes) -> float | None:
    """The one number of a TensorProto without dimensions."""
    kind, content = 0, b""
    for field, value in fields(message):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field in (4, 5, 6) and isinstance(value, bytes):
            content = value
    code = _TENSOR.get(kind)
    if code is None or len(content) != struct.calcsize(code):
        return None
    return float(struct.unpack(f"<{code}", content)[0])
