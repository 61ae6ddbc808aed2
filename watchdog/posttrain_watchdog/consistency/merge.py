"""Several token batches as one, whatever optional fields each of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from posttrain_watchdog.model import PER_TOKEN, TokenBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray


def merge(batches: Sequence[TokenBatch]) -> TokenBatch:
    """All sequences of `batches`, in order. A field that some of them lack is filled with its "unknown"."""
    if len(batches) == 1:
        return batches[0]
    lengths = np.concatenate([np.diff(b.offsets) for b in batches])
    merged: dict[str, Any] = {"offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)}
    for each in fields(TokenBatch):
        name = each.name
        values = [getattr(b, name) for b in batches]
        if name == "offsets" or all(v is None for v in values):
            continue
        if isinstance(values[0], (str, int)):
            merged[name] = values[-1]
        elif name == "labels":
            names = sorted({k for b in batches for k in b.labels})
            merged[name] = {k: _texts(batches, [b.labels.get(k) for b in batches]) for k in names}
        elif name == "extra":
            names = sorted({k for b in batches for k in b.extra})
            merged[name] = {k: v for k in names if (v := _extra(batches, k)) is not None}
        elif name == "finish_reason":
            merged[name] = _texts(batches, values)
        elif name == "prompt_ids":
            empty = np.zeros(0, np.int32)
            merged[name] = [p for b, v in zip(batches, values, strict=True) for p in (v or [empty] * b.sequences)]
        else:
            merged[name] = _arrays(batches, name, values)
    return TokenBatch(**merged)


def _texts(batches: Sequence[TokenBatch], columns: Sequence[Sequence[str] | None]) -> list[str]:
    return [t for b, c in zip(batches, columns, strict=True) for t in (c or [""] * b.sequences)]


def _extra(batches: Sequence[TokenBatch], name: str) -> NDArray[Any] | None:
    """[S] or [T] values of `name`; None where the batches do not agree on which."""
    given = [(b, b.extra[name]) for b in batches if name in b.extra]
    per_token = all(len(v) == b.tokens for b, v in given) and any(b.tokens != b.sequences for b, _ in given)
    if not per_token and any(len(v) != b.sequences for b, v in given):
        return None
    return np.concatenate(
        [
            np.asarray(b.extra[name], np.float64)
            if name in b.extra
            else np.full(b.tokens if per_token else b.sequences, np.nan)
            for b in batches
        ]
    )


def _arrays(batches: Sequence[TokenBatch], name: str, values: Sequence[NDArray[Any] | None]) -> NDArray[Any]:
    known = next(v for v in values if v is not None)
    missing: Any = np.nan if known.dtype.kind == "f" else (False if known.dtype.kind == "b" else -1)
    width = max((v.shape[1] for v in values if v is not None and v.ndim == 2), default=0)
    parts = []
    for batch, value in zip(batches, values, strict=True):
        count = batch.tokens if name in PER_TOKEN else batch.sequences
        have = np.full((count, width) if width else count, missing, known.dtype) if value is None else value
        if width and have.shape[1] < width:
            have = np.concatenate([have, np.full((count, width - have.shape[1]), missing, known.dtype)], axis=1)
        parts.append(have)
    return np.concatenate(parts)
