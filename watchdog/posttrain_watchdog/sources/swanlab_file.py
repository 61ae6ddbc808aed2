"""SwanLab's record of a run (`run-<id>.swanlab`, up to 0.7 `backup.swanlab`): the scalars in it, without swanlab.

Every mode but `disabled` writes it. The head's last byte tells the form of the records: 1 is JSON (swanlab 0.6, 0.7:
{"model_type": "Scalar", "data": {"key", "step", "metric": {"data", "create_time"}}}, numbers that are not finite as
words), 2 is protobuf (0.8 to 0.10: swanlab/proto/swanlab/record/v1 and metric/data/v1; zeros are left out). A record
holds one key. What SwanLab measures of the machine has an axis of its own and is left out. 0.9 and later write in
blocks of 8 KiB, so the last steps of a quiet run are not in the file yet.
"""

from __future__ import annotations

import struct
from datetime import datetime

import msgspec

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.record_log import RecordLog
from posttrain_watchdog.sources.tracked import Tracked
from posttrain_watchdog.sources.tracker_file import TrackerFile
from posttrain_watchdog.sources.trainers.text import number
from posttrain_watchdog.sources.wire import fields

MAGIC = b":SWL"
_SCALAR_FIELD = 13
_SYSTEM = "__swanlab__."
"""Begins the keys of what SwanLab measures itself."""


class _Metric(msgspec.Struct):
    data: float | str
    create_time: str


class _Scalar(msgspec.Struct):
    key: str
    step: int
    metric: _Metric


class _Told(msgspec.Struct):
    model_type: str
    data: msgspec.Raw


def reader() -> TrackerFile:
    """Reads one such file."""
    return TrackerFile(RecordLog(MAGIC), _take)


def _take(record: bytes, tracked: Tracked) -> list[Row | Event]:
    if record.startswith(b"{"):
        return _json(record, tracked)
    found: list[Row | Event] = []
    for field, value in fields(record):
        if field == _SCALAR_FIELD and isinstance(value, bytes):
            found += _scalar(value, tracked)
    return found


def _scalar(message: bytes, tracked: Tracked) -> list[Row | Event]:
    key, step, value, time = "", 0, 0.0, None
    for field, content in fields(message):
        if field == 2 and isinstance(content, int):
            step = content
        elif isinstance(content, int):
            continue
        elif field == 1:
            key = content.decode("utf-8")
        elif field == 4:
            parts = dict(fields(content))
            time = _whole(parts.get(1)) + _whole(parts.get(2)) / 1e9
        elif field == 5:
            value = next(
                (struct.unpack("<d", v)[0] for n, v in fields(content) if n == 1 and isinstance(v, bytes)), 0.0
            )
    return _gather(key, value, step, time, tracked)


def _whole(value: int | bytes | None) -> int:
    return value if isinstance(value, int) else 0


def _json(record: bytes, tracked: Tracked) -> list[Row | Event]:
    told = msgspec.json.decode(record, type=_Told)
    if told.model_type != "Scalar":
        return []
    data = msgspec.json.decode(told.data, type=_Scalar)
    value = number(data.metric.data) if isinstance(data.metric.data, str) else data.metric.data
    time = datetime.fromisoformat(data.metric.create_time).timestamp()
    return [] if value is None else _gather(data.key, value, data.step, time, tracked)


def _gather(key: str, value: float, step: int, time: float | None, tracked: Tracked) -> list[Row | Event]:
    if not key or key.startswith(_SYSTEM) or step >= 1 << 63:
        return []
    return tracked.gather([(key, value)], step, time)
