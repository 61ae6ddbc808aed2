"""From a path to what travels: the one place that knows which reader serves which kind of file.

`open_feeds` serves replay (finished files, read once); `Intake` serves the daemon (growing files, polled). Both go
through the same readers. Promises: a file that cannot be read is named with its reason and hides no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from posttrain_watchdog.config import RunConfig
from posttrain_watchdog.model import TokenBatch
from posttrain_watchdog.sources import attempts, binary, completion_tables, kinds, trainer_state
from posttrain_watchdog.sources.kinds import Kind, Refused
from posttrain_watchdog.sources.readers import Item, TokenReader, read_flight_recorder, reader_for
from posttrain_watchdog.sources.samples import Samples, by_step
from posttrain_watchdog.sources.tail import read_whole

WHOLE = (kinds.TRAINER_STATE, kinds.TOKEN_FILE, kinds.COMPLETIONS, kinds.FLIGHT)
"""kinds that are written anew as a whole"""


class Feed:
    """One finished file. Iterating reads it; `heavy` ones are not held in memory as a whole."""

    def __init__(self, path: Path, kind: Kind, logging_steps: int) -> None:
        self.path = str(path)
        self.kind = f"{kind.name}: {kind.dialect}" if kind.dialect else kind.name
        self.heavy = kind.name in (kinds.TOKENS, kinds.TOKEN_FILE)
        self.is_state = kind.name == kinds.TRAINER_STATE
        self.items = 0
        """counted by who iterates"""
        self._path = path
        self._kind = kind
        self._logging_steps = logging_steps

    def __iter__(self) -> Iterator[Item]:
        """Raises OSError or ValueError where the file turns out to be unreadable."""
        lineage, attempt = attempts.of(self._path)
        for item in self._content():
            if isinstance(item, (TokenBatch, Samples)):
                item.lineage, item.attempt = lineage, attempt
            yield item

    def _content(self) -> Iterator[Item]:
        if self._kind.name in WHOLE:
            yield from whole_file(self._kind, self._path)
        elif self._kind.name in kinds.BINARY:
            growing = binary.Growing(self._path, self._kind.name)
            yield from growing.poll()
            yield from growing.close()
            if growing.dialect:
                self.kind = f"{self._kind.name}: {growing.dialect}"
        else:
            reader = reader_for(self._kind, self._logging_steps, self._path)
            for lines in read_whole(self._path):
                yield from reader.read(lines)
            yield from reader.close()
            if reader.dialect:
                self.kind = f"{self._kind.name}: {reader.dialect}"
            if isinstance(reader, TokenReader) and reader.unreadable:
                raise ValueError(f"{reader.unreadable} of its lines cannot be read: {reader.reason}")


def whole_file(kind: Kind, path: Path, *, growing: bool = False, after: int = -1) -> Iterator[Item]:
    """A file of a kind that is written anew as a whole; of a trainer's state only the steps behind `after`.

    Raises OSError or ValueError, also where a file that is `growing` is not complete yet.
    """
    if kind.name == kinds.TRAINER_STATE:
        yield from trainer_state.read(path.read_text(encoding="utf-8", errors="replace"), after)
    elif kind.name == kinds.COMPLETIONS:
        yield from completion_tables.read_file(path)
    elif kind.name == kinds.FLIGHT:
        yield from read_flight_recorder(path)
    else:
        if reason := kinds.incomplete(kind, path, growing=growing):
            raise ValueError(reason)
        dialect = kinds.token_dialects()[kind.dialect]
        batch: TokenBatch = dialect.read_file(path)
        if batch.sequences:
            yield from (part for _, part in batch.by_step())
        elif hasattr(dialect, "samples_of_file"):
            yield from by_step(dialect.samples_of_file(path))


def matching(pattern: str) -> list[Path]:
    """The paths that a glob names now; a plain path is itself, whether it is there yet or not."""
    if not any(sign in pattern for sign in "*?["):
        return [Path(pattern)]
    parts = Path(pattern).parts
    fixed = next(i for i, part in enumerate(parts) if any(sign in part for sign in "*?["))
    return sorted(Path(*parts[:fixed]).glob(str(Path(*parts[fixed:]))))


def members(path: Path) -> list[Path]:
    """The files of a folder with all below it, or the file itself."""
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def open_feeds(paths: Iterable[Path], run: RunConfig) -> tuple[list[Feed], list[tuple[str, str]]]:
    """(feeds, (path, reason) of what is not read) for files and folders, folders with all below them."""
    found: list[tuple[Path, Kind]] = []
    refused: list[tuple[str, str]] = []
    for path in paths:
        for member in members(path):
            try:
                found.append((member, kinds.classify(member)))
            except Refused as error:
                refused.append((str(member), str(error)))
    old = kinds.superseded(found)
    refused += [(str(path), "a resumed run wrote this step again") for path, _ in found if path in old]
    return [Feed(path, kind, run.logging_steps) for path, kind in found if path not in old], refused
