"""From a path to what travels: the one place that knows which reader serves which kind of file.

`open_feeds` serves replay (finished files, read once); `Intake` serves the daemon (growing files, polled). Both go
through the same readers. Promises: a file that cannot be read is named with its reason and hides no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol

from posttrain_watchdog.config import RunConfig
from posttrain_watchdog.model import Diagnosis, Event, Row, TokenBatch
from posttrain_watchdog.sources import kinds, trainer_state
from posttrain_watchdog.sources.detection import Follower
from posttrain_watchdog.sources.failure_lines import FailureLines
from posttrain_watchdog.sources.kinds import Kind, Refused
from posttrain_watchdog.sources.tail import read_whole

Item = Row | Event | TokenBatch | Diagnosis


class Reader(Protocol):
    """Turns blocks of complete lines into items."""

    def read(self, lines: Sequence[bytes]) -> Iterable[Item]: ...

    def close(self) -> Iterable[Item]: ...


class LogReader:
    """Any text log: a trainer's dialect, an engine's, and the lines in which things go wrong."""

    def __init__(self, logging_steps: int) -> None:
        self._trainer = Follower(logging_steps)
        self._failures = FailureLines()

    @property
    def dialect(self) -> str:
        return self._trainer.dialect

    def read(self, lines: Sequence[bytes]) -> Iterator[Item]:
        for raw in lines:
            line = raw.decode("utf-8", "replace").rstrip("\r")
            yield from self._trainer.feed(line)
            yield from self._failures.feed(line)

    def close(self) -> Iterator[Item]:
        yield from self._trainer.close()


class TokenReader:
    """A token dump in lines: a batch a step."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def read(self, lines: Sequence[bytes]) -> Iterator[Item]:
        batch: TokenBatch = self._module.read(lines)
        if batch.sequences:
            for _, part in batch.by_step():
                yield part

    def close(self) -> Iterable[Item]:
        return ()


def reader_for(kind: Kind, logging_steps: int) -> Reader:
    """The reader of a kind that comes in lines."""
    if kind.name == kinds.TOKENS:
        return TokenReader(kinds.token_dialects()[kind.dialect])
    return LogReader(logging_steps)


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
        if self._kind.name == kinds.TRAINER_STATE:
            yield from trainer_state.read(self._path.read_text(encoding="utf-8", errors="replace"))
        elif self._kind.name == kinds.TOKEN_FILE:
            batch: TokenBatch = kinds.token_dialects()[self._kind.dialect].read_file(self._path)
            for _, part in batch.by_step():
                yield part
        else:
            reader = reader_for(self._kind, self._logging_steps)
            for lines in read_whole(self._path):
                yield from reader.read(lines)
            yield from reader.close()
            if isinstance(reader, LogReader):
                self.kind = f"{self._kind.name}: {reader.dialect}"


def open_feeds(paths: Iterable[Path], run: RunConfig) -> tuple[list[Feed], list[tuple[str, str]]]:
    """(feeds, (path, reason) of what is not read) for files and folders, folders with all below them."""
    feeds: list[Feed] = []
    refused: list[tuple[str, str]] = []
    for path in paths:
        members = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for member in members:
            try:
                feeds.append(Feed(member, kinds.classify(member), run.logging_steps))
            except Refused as error:
                refused.append((str(member), str(error)))
    return feeds, refused
