"""Decoded records column by column: lists become flat arrays, ragged and never padded.

Promises: every list becomes its part of an array, unequal lengths, nulls and values that are no numbers included; what
is missing is said to be. Fast where the values are what they should be: each list is packed at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Record: TypeAlias = Mapping[str, Any]
Floats: TypeAlias = "NDArray[np.float32]"
Column: TypeAlias = Sequence[Any]
"""[S] one value of each record, None where it has none"""


@dataclass(slots=True)
class Sheet:
    """The records column by column; T and the offsets are those of the longest per-token field of each record."""

    count: int
    columns: dict[str, Column]
    lengths: list[int]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, records: Sequence[Record], tokens: Iterable[str]) -> Sheet:
        """`tokens`: the per-token names that say how long a sequence is."""
        columns = _transposed(records)
        lengths = [0] * len(records)
        for name in tokens:
            if name in columns and (own := sizes(columns[name])) != lengths:
                lengths = list(map(max, lengths, own))
        offsets = np.zeros(len(records) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(len(records), columns, lengths, offsets)

    def column(self, names: Iterable[str]) -> Column:
        """Of each record the first of `names` that is there and not null."""
        present = [self.columns[n] for n in names if n in self.columns]
        if not present:
            return [None] * self.count
        column = present[0]
        for other in present[1:]:
            if None not in column:
                break
            column = [w if v is None else v for v, w in zip(column, other, strict=True)]
        return column

    def lists(self, names: Iterable[str]) -> Column | None:
        """The column, if there is a list in it."""
        present = [n for n in names if n in self.columns]
        column = self.column(present)
        return column if present and list in set(map(type, column)) else None

    def flat(self, column: Column, dtype: Any, missing: Any) -> NDArray[Any]:
        """[T] the lists of a column end to end, each filled up with `missing` to the record's length."""
        whole = column
        if sizes(column) != self.lengths:
            whole = [
                v[:n] + [missing] * (n - len(v)) if type(v) is list else [missing] * n
                for v, n in zip(column, self.lengths, strict=True)
            ]
        with suppress(TypeError, ValueError, OverflowError, struct.error):
            if dtype is np.bool_:  # 0 and 1
                return np.frombuffer(b"".join(map(bytes, whole)), np.uint8).astype(np.bool_)
            return _packed(whole, self.lengths, dtype)
        return _cast(numbers_of(list(chain.from_iterable(whole)), missing), dtype, missing)

    def floats(self, names: Iterable[str]) -> Floats:
        return self.flat(self.column(names), np.float32, np.nan)

    def optional(self, names: Sequence[str]) -> Floats | None:
        column = self.lists(names)
        return None if column is None else self.flat(column, np.float32, np.nan)

    def ids(self, names: Sequence[str]) -> NDArray[np.int32] | None:
        column = self.lists(names)
        return None if column is None else self.flat(column, np.int32, -1)

    def mask(self, names: Sequence[str], less: Sequence[str]) -> NDArray[np.bool_]:
        """[T] the first of `names` times the first of `less`; True where there is none."""
        column = self.lists(names)
        if column is None:
            return np.ones(int(self.offsets[-1]), np.bool_)
        mask = self.flat(self._with_ones(column), np.bool_, 0)
        tools = self.lists(less)
        if tools is not None:
            mask &= self.flat(self._with_ones(tools), np.bool_, 1)
        return mask.astype(np.bool_, copy=False)

    def _with_ones(self, column: Column) -> Column:
        return [v if type(v) is list else [1] * n for v, n in zip(column, self.lengths, strict=True)]

    def nulls(self, names: Sequence[str], values: Floats) -> NDArray[np.bool_] | None:
        """[T] where the source says null or nothing, as against "NaN"; None where nothing is missing."""
        if not np.isnan(values).any():
            return None
        null = [
            [x is None for x in v[:n]] + [True] * (n - len(v)) if type(v) is list else [True] * n
            for v, n in zip(self.column(names), self.lengths, strict=True)
        ]
        return np.fromiter(chain.from_iterable(null), np.bool_, len(values))

    def numbers(self, names: Sequence[str], dtype: Any, missing: float) -> NDArray[Any]:
        found = self.numbers_or_none(names, dtype, missing)
        return np.full(self.count, missing, dtype) if found is None else found

    def numbers_or_none(self, names: Sequence[str], dtype: Any, missing: float) -> NDArray[Any] | None:
        if not any(n in self.columns for n in names):
            return None
        return _cast(numbers_of(self.column(names), missing), dtype, missing)

    def lengths_of(self, names: Sequence[str]) -> NDArray[np.int64] | None:
        column = self.lists(names)
        return None if column is None else np.array(sizes(column), np.int64)


def _transposed(records: Sequence[Record]) -> dict[str, Column]:
    """Name -> column. Records of one writer have the same names, which costs a third of looking each one up."""
    names = list(records[0]) if records else []
    if len(names) > 1 and sum(map(len, records)) == len(names) * len(records):
        with suppress(KeyError):
            return dict(zip(names, zip(*map(itemgetter(*names), records), strict=True), strict=True))
    return {name: [r.get(name) for r in records] for name in dict.fromkeys(chain.from_iterable(records))}


def sizes(column: Column) -> list[int]:
    """[S] lengths, -1 for what is no list."""
    if set(map(type, column)) == {list}:
        return list(map(len, column))
    return [len(v) if type(v) is list else -1 for v in column]


def _packed(lists: Column, lengths: Sequence[int], dtype: Any) -> NDArray[Any]:
    """Lists of these lengths end to end, in half the time of np.fromiter. Raises struct.error, OverflowError."""
    code, whole = ("f", np.float32) if dtype is np.float32 else ("q", np.int64)
    pack = {n: struct.Struct(f"{n}{code}").pack for n in set(lengths)}
    found = np.frombuffer(bytearray().join([pack[n](*v) for v, n in zip(lists, lengths, strict=True)]), whole)
    if dtype is whole:
        return found
    narrow = found.astype(dtype)
    if (narrow != found).any():
        raise OverflowError
    return narrow


def _cast(values: NDArray[np.float64], dtype: Any, missing: float) -> NDArray[Any]:
    """Numbers of a narrower type; what is none of it is missing."""
    if np.issubdtype(dtype, np.integer):
        with np.errstate(invalid="ignore"):
            values = np.where(np.abs(values) <= np.iinfo(dtype).max / 2, values, missing)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def numbers_of(column: Column, missing: float) -> NDArray[np.float64]:
    with suppress(OverflowError):
        if set(map(type, column)) <= {int, float}:
            return np.array(column, np.float64)
    return np.array([_number(v, missing) for v in column], np.float64)


def _number(value: Any, missing: float) -> float:
    if value is None or isinstance(value, (list, dict)):
        return missing
    try:
        return float(value)
    except (ValueError, OverflowError):
        return missing
