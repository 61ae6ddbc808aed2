"""From a path to what travels: the one place that knows which reader serves which kind of file.

`open_feeds` serves replay (finished files, read once); `Intake` serves the daemon (growing files, polled). Both go
through the same readers. Promises: a file that cannot be read is named with its reason and hides no other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from posttrain_watchdog.config import RunConfig
from posttrain_watchdog.model import Row, TokenBatch
from posttrain_watchdog.sources import attempts, binary, completion_tables, kinds, trainer_state
from posttrain_watchdog.sources.journal import Journal
from posttrain_watchdog.sources.kinds import Kind, Refused
from posttrain_watchdog.sources.readers import Item, Reader, TokenReader, read_flight_recorder, reader_for
from posttrain_watchdog.sources.rotated import base_of, beside
from posttrain_watchdog.sources.samples import Samples, by_step
from posttrain_watchdog.sources.tail import Tail, is_gzip, read_whole

MOST_OPEN = 256
"""files that are held open at once; the others are opened when they have grown"""
_WHOLE = (kinds.TRAINER_STATE, kinds.TOKEN_FILE, kinds.COMPLETIONS, kinds.FLIGHT)
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
        if self._kind.name in _WHOLE:
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


@dataclass(slots=True)
class Source:
    """One growing file of the daemon."""

    path: Path
    kind: Kind | None = None
    tail: Tail | Journal | None = None
    reader: Reader | None = None
    growing: binary.Growing | None = None
    error: str = ""
    items: int = 0
    lines: int = 0
    failures: int = 0
    """times that the file, or a record of it, turned out to be unreadable for another reason than before"""
    last_item: float | None = None
    read_mtime: float = -1.0
    readings: int = 0
    """times that a file without a tail was read as a whole before"""
    last_step: int = -1

    @property
    def parse_errors(self) -> int:
        """Records that could not be read: failures, and lines longer than any line may be."""
        unreadable = self.reader.unreadable if isinstance(self.reader, TokenReader) else 0
        return self.failures + unreadable + (self.tail.skipped_lines if isinstance(self.tail, Tail) else 0)

    @property
    def rewritten(self) -> int:
        """Times that the file was written anew: what it says then takes the place of what it said before."""
        return self.tail.rewritten if isinstance(self.tail, Tail) else self.readings

    @property
    def label(self) -> str:
        """The kind, with the dialect where there is one."""
        if self.kind is None:
            return "unknown yet"
        reader = self.reader if self.reader is not None else self.growing
        dialect = reader.dialect if reader is not None else self.kind.dialect
        return f"{self.kind.name}: {dialect}" if dialect else self.kind.name


def matching(pattern: str) -> list[Path]:
    """The paths that a glob names now; a plain path is itself, whether it is there yet or not."""
    if not any(sign in pattern for sign in "*?["):
        return [Path(pattern)]
    parts = Path(pattern).parts
    fixed = next(i for i, part in enumerate(parts) if any(sign in part for sign in "*?["))
    return sorted(Path(*parts[:fixed]).glob(str(Path(*parts[fixed:]))))


class Intake:
    """The files of one run, followed. Poll it; it never sleeps, and never raises for what a file is."""

    def __init__(self, run: RunConfig, most_open: int = MOST_OPEN) -> None:
        self._run = run
        self._most_open = most_open
        self._sources: dict[Path, Source] = {}
        self._recent: OrderedDict[Path, Tail] = OrderedDict()
        """tails that hold descriptors, the one that gave lines last at the end"""
        for unit in run.journal_units:
            path = Path(f"journal:{unit}")
            self._sources[path] = Source(path, Kind(kinds.TEXT), Journal(unit), reader_for(Kind(kinds.TEXT)))

    def follow(self, paths: Iterable[str]) -> None:
        """Follows these paths, too."""
        new = [path for path in paths if path not in self._run.paths]
        self._run = self._run.model_copy(update={"paths": [*self._run.paths, *new]})

    def poll(self, now: float) -> Iterator[tuple[Source, Item]]:
        """Everything new of all files; files that match later are found."""
        self._look()
        for source in list(self._sources.values()):
            try:
                for item in self._items(source):
                    source.items += 1
                    source.last_item = now
                    if isinstance(item, (TokenBatch, Samples)):
                        item.lineage, item.attempt = attempts.of(source.path)
                        item.reading = source.rewritten
                    yield source, item
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                source.failures += reason != source.error
                source.error = reason
            self._bound(source)

    def sources(self) -> list[Source]:
        """What is followed, for the status page."""
        return list(self._sources.values())

    def finish(self) -> Iterator[tuple[Source, Item]]:
        """What the last lines without a newline and the end of the logs complete."""
        for source in self._sources.values():
            if source.tail is not None and source.reader is not None:
                for chunk in source.tail.finish():
                    yield from ((source, item) for item in source.reader.read(chunk.lines))
                yield from ((source, item) for item in source.reader.close())
            elif source.growing is not None:
                yield from ((source, item) for item in source.growing.close())

    def close(self) -> None:
        for source in self._sources.values():
            if source.tail is not None:
                source.tail.close()

    def _bound(self, source: Source) -> None:
        """Thousands of files may be followed; few of them are held open."""
        if not isinstance(source.tail, Tail):
            return
        if source.tail.open_files:
            self._recent[source.path] = source.tail
        while len(self._recent) > self._most_open:
            self._recent.popitem(last=False)[1].release()

    def _look(self) -> None:
        for pattern in self._run.paths:
            for path in matching(pattern):
                for member in members(path):
                    if member not in self._sources and not self._is_rotated(member):
                        self._sources[member] = Source(member)

    def _is_rotated(self, path: Path) -> bool:
        """Whether another path's Tail reads this file: it was rotated away from there."""
        base = base_of(path)
        if base is None:
            return False
        source = self._sources.get(base)
        return base.exists() or (source is not None and source.tail is not None)

    def _items(self, source: Source) -> Iterator[Item]:
        if source.kind is None and not self._classify(source):
            return
        kind = source.kind
        if kind is None:
            return
        if kind.name in _WHOLE:
            yield from self._whole(source, self._file_items)
        elif source.growing is not None:
            yield from self._whole(source, self._growing_items)
        elif source.reader is not None and source.tail is None:
            yield from self._whole(source, self._packed_items)
        elif source.tail is not None and source.reader is not None:
            for chunk in source.tail.poll():
                source.lines += len(chunk.lines)
                yield from source.reader.read(chunk.lines)
            source.error = source.tail.error

    def _classify(self, source: Source) -> bool:
        """Learns what the file is, once it has enough in it to tell."""
        try:
            if source.path.is_fifo():  # a look at its head would wait, and take it away
                source.kind = Kind(kinds.TEXT)
                source.reader, source.tail = reader_for(source.kind), Tail(source.path)
                return True
            source.kind = kinds.classify(source.path)
        except Refused as error:
            source.error = str(error)
            return False
        if source.kind.name == kinds.TEXT and not kinds.has_line(source.path):
            source.kind, source.error = None, "has no complete line yet"
            return False
        source.error = ""
        if source.kind.name in kinds.BINARY:
            source.growing = binary.Growing(source.path, source.kind.name)
        elif source.kind.name not in _WHOLE:
            source.reader = reader_for(source.kind, self._run.logging_steps, source.path)
            source.tail = None if is_gzip(source.path) else Tail(source.path, history=self._with_history(source.path))
        return True

    def _with_history(self, path: Path) -> bool:
        """Files that were rotated away before are read where the settings name them too: by a folder or a glob."""
        others = [each.path for each in beside(path)]
        return any(other in matching(p) or Path(p) in other.parents for p in self._run.paths for other in others[:1])

    def _whole(self, source: Source, read: Callable[[Source], Iterator[Item]]) -> Iterator[Item]:
        """A file that is written anew as a whole: read again when it has changed."""
        changed = source.path.stat().st_mtime
        if changed == source.read_mtime:
            return
        yield from read(source)
        source.read_mtime = changed
        source.readings += 1
        source.error = ""

    @staticmethod
    def _file_items(source: Source) -> Iterator[Item]:
        for item in whole_file(source.kind or Kind(kinds.TEXT), source.path, growing=True, after=source.last_step):
            if isinstance(item, Row) and item.step is not None:
                source.last_step = max(source.last_step, item.step)
            yield item

    @staticmethod
    def _growing_items(source: Source) -> Iterator[Item]:
        if source.growing is not None:
            yield from source.growing.poll()

    @staticmethod
    def _packed_items(source: Source) -> Iterator[Item]:
        if source.reader is not None:
            for lines in read_whole(source.path):
                yield from source.reader.read(lines)
