"""What was read of a file before a place: for readers that must have seen it to go on as if they had never stopped.

Promises: exactly the lines that a Tail handed out under this path before the place, as far as they are still there;
files that were rotated away before it come first. Nothing of it is news. What cannot be read is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from posttrain_watchdog.sources.open_file import CHUNK, HEAD, OpenFile, Position
from posttrain_watchdog.sources.rotated import beside
from posttrain_watchdog.sources.tail import MAX_LINE, fits, own_of


def lines_before(place: Position, path: Path) -> Iterator[list[bytes]]:
    """Blocks of lines, about a MiB each, in order."""
    siblings = beside(path)
    there = _at_path(place, path)
    own = None if there else own_of(place, siblings)
    if not there and own is None:
        return
    for each in siblings:
        if own is None or each.order < own.order:
            yield from _lines(each.content(0))
    yield from _lines(_first(path, place.offset) if own is None else _cut(own.content(0), place.offset))


def _at_path(place: Position, path: Path) -> bool:
    try:
        info = path.stat()
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return False
    return fits(place, (info.st_dev, info.st_ino), head, info.st_size)


def _first(path: Path, length: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from _cut(iter(lambda: file.read(CHUNK), b""), length)
    except OSError:
        return


def _cut(blocks: Iterable[bytes], length: int) -> Iterator[bytes]:
    for block in blocks:
        if length <= 0:
            return
        yield block[:length]
        length -= len(block)


def _lines(blocks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """As a Tail makes lines of them, the last of a file without a newline included."""
    file = OpenFile(MAX_LINE)
    for block in blocks:
        for chunk in file.take(block):
            yield chunk.lines
    for chunk in file.finish():
        yield chunk.lines
