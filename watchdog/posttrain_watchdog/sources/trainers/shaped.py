"""JSON objects whose keys repeat line after line, decoded by a struct made for just these keys.

Promises: what it gives is what the plain decoder gives, or None where the keys are others. The number of structs that
are ever made is bounded, so lines with changing keys cost no memory.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

_BEFORE = 16
"""Records with the same keys before a struct is made for them."""
_MOST_MADE = 8
_MOST_COUNTED = 64
_Values = tuple[float | None, ...]


class Shaped:
    """The decoder of one log's records."""

    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ()
        self._decode: Callable[[str], object] | None = None
        self._seen: dict[tuple[str, ...], int] = {}
        self._made = 0

    def values(self, line: str) -> _Values | None:
        """The values of `self.keys`, in their order; None where the line is no object with exactly these."""
        if self._decode is None:
            return None
        try:
            return msgspec.structs.astuple(self._decode(line))  # type: ignore[arg-type]
        except (msgspec.DecodeError, UnicodeError):
            return None

    def learn(self, keys: tuple[str, ...]) -> None:
        """Takes note of a record that was read the plain way."""
        if self._made >= _MOST_MADE or keys == self.keys or not keys:
            return
        if len(self._seen) >= _MOST_COUNTED:
            self._seen.clear()
        count = self._seen[keys] = self._seen.get(keys, 0) + 1
        if count < _BEFORE:
            return
        self._seen.clear()
        self._made += 1
        names = [f"f{place}" for place in range(len(keys))]
        try:
            struct = msgspec.defstruct(
                "Record",
                [(name, float | None) for name in names],
                rename=dict(zip(names, keys, strict=True)),
                forbid_unknown_fields=True,
            )
        except ValueError:  # a key that JSON would have to escape
            return
        self._decode, self.keys = msgspec.json.Decoder(struct, strict=False).decode, keys
