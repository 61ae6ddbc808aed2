"""W&B's offline run file (`run-<id>.wandb`): the history records in it, without wandb.

Pictures, tables and histograms are left out. Format: wandb/proto/wandb_internal.proto (wandb 0.16 to 0.31). Current
ones write every 15 seconds or so, and name each leaf of a nested value; the names are joined with `/` here.
"""

from __future__ import annotations

import msgspec

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.record_log import RecordLog
from posttrain_watchdog.sources.tracked import Tracked
from posttrain_watchdog.sources.tracker_file import TrackerFile
from posttrain_watchdog.sources.trainers.text import Numbers, number
from posttrain_watchdog.sources.wire import fields

MAGIC = b":W&B"
_TYPE = "/_type"
"""Ends the name of the leaf that tells which medium a nested value describes."""


def reader() -> TrackerFile:
    """Reads one such file."""
    return TrackerFile(RecordLog(MAGIC), _take)


def _take(record: bytes, tracked: Tracked) -> list[Row | Event]:
    found: list[Row | Event] = []
    for field, value in fields(record):
        if field == 2 and isinstance(value, bytes):
            found += _history(value, tracked)
    return found


def _history(message: bytes, tracked: Tracked) -> list[Row | Event]:
    items: list[tuple[str, float | None]] = []
    step: int | None = None
    for field, value in fields(message):
        if field == 1 and isinstance(value, bytes):
            items.append(_item(value))
        elif field == 2 and isinstance(value, bytes):
            step = next((v for n, v in fields(value) if n == 1 and isinstance(v, int)), step)
    media = tuple(key.removesuffix(_TYPE) + "/" for key, _ in items if key.endswith(_TYPE))
    # their order is another one in every record: sorted, records of the same keys are alike
    numbers: Numbers = {key: told for key, told in sorted(items) if key and not key.startswith(media)}
    told_step = numbers.pop("_step", None)
    if step is None and told_step is not None:
        step = int(told_step)
    if all(key.startswith("_") for key in numbers):
        return []
    return tracked.rows(numbers, step, numbers.get("_timestamp"))


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
