"""From a trainer's arrays to one record a sequence, in the native form of token dumps.

Promises: takes arrays as trainers hold them (padded, ragged or packed; numpy, torch on any device and in any number
format, lists) and changes none of them; sides of unequal length stay unequal; NaN and infinities are kept as text.
Numbers keep seven digits: what float32 holds. Never imports torch: a tensor is whatever has `detach`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

FLOATS = (
    "engine_logprobs",
    "trainer_logprobs",
    "current_logprobs",
    "reference_logprobs",
    "trainer_rescored",
    "entropy",
)
WHOLE = ("token_ids", "engine_token_ids", "token_versions")
MASKS = ("mask", "tool_mask")
PER_TOKEN = (*FLOATS, *WHOLE, *MASKS)
"""Always one value a token; other names are told by their shape."""


def sequences(fields: Mapping[str, Any], offsets: Any = None) -> list[dict[str, Any]]:
    """One record a sequence, ready for JSON.

    `fields`: per token [B, T], a list of B arrays, or packed [tokens] with `offsets` [B + 1]; per sequence [B] or one
    value for all. `prompt_ids` [B, P] is cut by `prompt_mask`. None is left out. Raises ValueError where shapes do not
    fit.
    """
    given = {name: plain(value) for name, value in fields.items() if value is not None}
    prompt_mask = given.pop("prompt_mask", None)
    bounds = None if offsets is None else [int(n) for n in plain(offsets)]
    per_token = {name: _rows(given.pop(name), bounds) for name in PER_TOKEN if name in given}
    if not per_token:
        raise ValueError("expected at least one array with a value a token")
    count = len(next(iter(per_token.values())))
    prompts = given.pop("prompt_ids", None)
    if prompts is not None:
        per_token["prompt_ids"] = _prompts(prompts, prompt_mask)
    for name in [n for n, v in given.items() if _is_per_token(v)]:
        per_token[name] = _rows(given.pop(name), None)
    for name, rows in per_token.items():
        if len(rows) != count:
            raise ValueError(f"{name}: {len(rows)} sequences, expected {count}")
    _cut_padding(per_token)
    single = {name: _values(name, value, count) for name, value in given.items()}
    return [
        {
            **{name: values[i] for name, values in single.items()},
            **{name: numbers(rows[i], name) for name, rows in per_token.items()},
        }
        for i in range(count)
    ]


def plain(value: Any) -> Any:
    """Tensors as numpy arrays, lists with their members so; all else as it is."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):
        held = value.detach().cpu()
        try:
            return held.numpy()
        except TypeError:  # bfloat16 and the 8-bit floats have no counterpart in numpy
            return held.float().numpy()
    if isinstance(value, (list, tuple)):
        return (
            [plain(v) for v in value] if any(hasattr(v, "__len__") and not isinstance(v, str) for v in value) else value
        )
    return value


def numbers(row: Array, name: str = "") -> list[Any]:
    """[n] as JSON values: whole numbers, 0 and 1 for masks, floats of seven digits."""
    if name in MASKS or row.dtype == np.bool_:
        found: list[Any] = (row != 0).astype(np.int8).tolist()
        return found
    if row.dtype == object:  # null, which is not the same finding as NaN
        return [None if x is None else numbers(np.asarray([x], np.float64))[0] for x in row]
    if row.dtype.kind in "iu":
        whole: list[Any] = row.tolist()
        return whole
    wide = row.astype(np.float64)
    # float32 has seven digits: more decimals are noise, and cost half of the disk
    short: list[Any] = np.where(np.abs(wide) < 1e-3, np.round(wide, 12), np.round(wide, 7)).tolist()
    if np.isfinite(wide).all():
        return short
    return [x if np.isfinite(x) else _word(x) for x in short]


def _word(value: float) -> str:
    return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _rows(value: Any, bounds: list[int] | None) -> list[Array]:
    """B arrays [n]."""
    if bounds is not None and not _nested(value):
        packed = np.asarray(value)
        if bounds[-1] != len(packed):
            raise ValueError(f"offsets end at {bounds[-1]}, expected {len(packed)}")
        return [packed[a:b] for a, b in pairwise(bounds)]
    if not _nested(value):
        raise ValueError("expected [B, T], a list of B arrays, or packed values with offsets")
    return [np.asarray(row if row is not None else []) for row in value]


def _nested(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 2
    return isinstance(value, (list, tuple)) and all(row is None or hasattr(row, "__len__") for row in value)


def _is_per_token(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 2
    return isinstance(value, (list, tuple)) and any(isinstance(row, (list, tuple, np.ndarray)) for row in value)


def _prompts(value: Any, mask: Any) -> list[Array]:
    rows = _rows(value, None)
    if mask is None:
        return rows
    return [row[m != 0] for row, m in zip(rows, _rows(mask, None), strict=True)]


def _cut_padding(rows: dict[str, list[Array]]) -> None:
    """Leaves out the common tail of a padded sequence, where the mask is 0 and the engine has 0.

    A sequence of which nothing counts is kept whole: that nobody scores it is a finding.
    """
    masks, engine = rows.get("mask"), rows.get("engine_logprobs")
    if masks is None:
        return
    for i, mask in enumerate(masks):
        width = len(mask)
        live = mask != 0
        if engine is not None and len(engine[i]) == width:
            live = live | (engine[i] != 0)
        last = np.flatnonzero(live)
        if not len(last):
            continue
        for name, values in rows.items():
            if name != "prompt_ids" and len(values[i]) == width:
                values[i] = values[i][: int(last[-1]) + 1]


def _values(name: str, value: Any, count: int) -> list[Any]:
    """[B] values that JSON has, or one for all."""
    if isinstance(value, np.ndarray):
        value = numbers(value.reshape(-1), name) if value.dtype.kind in "biuf" else [str(v) for v in value.reshape(-1)]
        value = value[0] if len(value) == 1 != count else value
    if not isinstance(value, (list, tuple)):
        return [_value(value)] * count
    if len(value) != count:
        raise ValueError(f"{name}: {len(value)} values, expected {count}")
    return [_value(v) for v in value]


def _value(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, dict):
        return {str(k): str(v) for k, v in value.items()}
    if isinstance(value, np.generic) or (hasattr(value, "item") and not isinstance(value, float)):
        return _value(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else _word(value)
    return str(value)
