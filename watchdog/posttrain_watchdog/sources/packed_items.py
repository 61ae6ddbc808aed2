"""Items as bytes and back, so that what a source gave outlives the process.

Promises: what comes back equals what was packed, NaN and infinities included; bytes of another layout raise
ValueError, and nothing in them is ever executed (msgpack and raw arrays). Packs what can be kept: rows, events,
samples (with tokens or without) and answers. A flight recorder's dump and a finding of a source are made anew from
where they came.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
import numpy as np

from posttrain_watchdog.model import Event, Metric, Row, TokenBatch
from posttrain_watchdog.sources.readers import Answers, Item
from posttrain_watchdog.sources.samples import Samples

_ROW, _EVENT, _ANSWERS, _TOKENS, _SAMPLES = range(5)
_COLUMNS: dict[int, type[TokenBatch | Samples]] = {_TOKENS: TokenBatch, _SAMPLES: Samples}
_ARRAY = 1
"""msgpack's own type for an array: its dtype, shape and bytes"""
_NUMERIC = "biuf"


def _extended(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in _NUMERIC:
        return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode((value.dtype.str, value.shape, value.tobytes())))
    raise TypeError(f"{type(value).__name__} cannot be kept")


def _array(code: int, data: memoryview) -> Any:
    dtype, shape, raw = msgspec.msgpack.decode(data)
    if code != _ARRAY or np.dtype(dtype).kind not in _NUMERIC:
        raise ValueError(f"expected an array of numbers, got code {code} of type {dtype}")
    return np.frombuffer(raw, dtype).reshape(shape).copy()


_encoder = msgspec.msgpack.Encoder(enc_hook=_extended)
_decoder = msgspec.msgpack.Decoder(ext_hook=_array)
_answers = msgspec.msgpack.Decoder(Answers)


def is_heavy(item: Item) -> bool:
    """Whether the item holds samples rather than a few numbers: fewer of these are worth keeping."""
    return isinstance(item, (TokenBatch, Samples, Answers))


def pack(item: Item) -> bytes | None:
    """The item as bytes; None for what is not kept."""
    if isinstance(item, Row):
        values = [(m.name, m.labels, value) for m, value in item.values.items()]
        return _encoder.encode((_ROW, item.step, item.time, values))
    if isinstance(item, Event):
        return _encoder.encode((_EVENT, item.step, item.time, item.kind, item.text, item.labels))
    if isinstance(item, Answers):
        return _encoder.encode((_ANSWERS, _encoder.encode(item)))
    for kind, columns in _COLUMNS.items():
        if isinstance(item, columns):
            given = {f.name: value for f in fields(item) if (value := getattr(item, f.name)) is not None}
            return _encoder.encode((kind, given))
    return None


def unpack(data: bytes) -> Item:
    """The item of these bytes. Raises ValueError."""
    try:
        kind, *rest = _decoder.decode(data)
        if kind == _ROW:
            step, time, values = rest
            labelled = ((Metric(name, tuple((k, v) for k, v in labels)), value) for name, labels, value in values)
            return Row(dict(labelled), step, time)
        if kind == _EVENT:
            step, time, what, text, labels = rest
            return Event(what, text, labels, step, time)
        if kind == _ANSWERS:
            return _answers.decode(rest[0])
        if kind in _COLUMNS:
            return _COLUMNS[kind](**rest[0])
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"expected a kept item: {error}") from None
    raise ValueError(f"expected a kept item, got kind {kind!r}")
