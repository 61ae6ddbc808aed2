"""The growing files of one run, followed: what the daemon polls.

Promises: a file that cannot be read is named with its reason and hides no other; where reading of each source stands
can be asked behind every poll, and given to the next process. Never sleeps.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from posttrain_watchdog.config import RunConfig
from posttrain_watchdog.feed import WHOLE, matching, members, whole_file
from posttrain_watchdog.model import Row, TokenBatch
from posttrain_watchdog.sources import attempts, binary, kinds
from posttrain_watchdog.sources.checkpoints import Place
from posttrain_watchdog.sources.journal import Journal
from posttrain_watchdog.sources.kinds import Kind, Refused
from posttrain_watchdog.sources.readers import Item, Reader, TokenReader, reader_for
from posttrain_watchdog.sources.rotated import base_of, beside
from posttrain_watchdog.sources.samples import Samples
from posttrain_watchdog.sources.tail import Tail, is_gzip, read_whole
from posttrain_watchdog.sources.told import lines_before

MOST_OPEN = 256
"""files that are held open at once; the others are opened when they have grown"""
_WARM_BYTES = 64 << 20
"""of a log's past that are read in one poll after a restart"""
_LAST_BYTES = 64 << 10
"""of a source that cannot be read again, kept for its reader: more than a step's block in any trainer's log"""


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
    rewritten_before: int = 0
    """times that it was written anew for a former process"""
    last_step: int = -1
    said_time: float | None = None
    """when the lines in hand were written, where the source says so"""
    warming: Iterator[list[bytes]] | None = None
    """what was read before a restart and not yet shown to the new reader"""
    backlog: bool = True
    """whether what is read was written before anybody looked"""
    last_lines: deque[bytes] = field(default_factory=deque)
    _placed: tuple[tuple[int, int, float], Place] = ((0, 0, -1.0), Place())

    def place(self) -> Place:
        """Where reading stands, behind everything that was handed out; the same object until something was."""
        tail, offset = self.tail, self.growing.offset if self.growing is not None else 0
        read = (self.lines, offset, self.read_mtime)
        if read != self._placed[0]:
            place = Place(
                position=tail.position() if isinstance(tail, Tail) else None,
                cursor=tail.cursor if isinstance(tail, Journal) else "",
                last_lines=tuple(self.last_lines),
                modified=self.read_mtime,
                last_step=self.last_step,
                offset=offset,
                rewritten=self.rewritten,
            )
            self._placed = read, place
        return self._placed[1]

    def resume(self, place: Place) -> None:
        """Goes on where a former process stopped."""
        self.backlog = place == Place()
        self.read_mtime, self.last_step = place.modified, place.last_step
        self.rewritten_before = place.rewritten
        self.remember(place.last_lines)
        self._placed = (0, place.offset, place.modified), place

    def remember(self, lines: Sequence[bytes]) -> None:
        """Keeps the last lines of what cannot be read again."""
        self.last_lines.extend(lines)
        held = sum(map(len, self.last_lines))
        while held > _LAST_BYTES and len(self.last_lines) > 1:
            held -= len(self.last_lines.popleft())

    @property
    def parse_errors(self) -> int:
        """Records that could not be read: failures, and lines longer than any line may be."""
        unreadable = self.reader.unreadable if isinstance(self.reader, TokenReader) else 0
        return self.failures + unreadable + (self.tail.skipped_lines if isinstance(self.tail, Tail) else 0)

    @property
    def rewritten(self) -> int:
        """Times that the file was written anew: what it says then takes the place of what it said before."""
        return self.rewritten_before + (self.tail.rewritten if isinstance(self.tail, Tail) else self.readings)

    @property
    def files_lost(self) -> int:
        """Times its content was replaced and the former one was not found."""
        return self.tail.lost_files if isinstance(self.tail, Tail) else 0

    @property
    def label(self) -> str:
        """The kind, with the dialect where there is one."""
        if self.kind is None:
            return "unknown yet"
        reader = self.reader if self.reader is not None else self.growing
        dialect = reader.dialect if reader is not None else self.kind.dialect
        return f"{self.kind.name}: {dialect}" if dialect else self.kind.name


class Intake:
    """The files of one run, followed. Poll it; it never sleeps, and never raises for what a file is."""

    def __init__(self, run: RunConfig, most_open: int = MOST_OPEN, places: Mapping[Path, Place] | None = None) -> None:
        """`places`: where the reading of sources stopped in a former process; it goes on there."""
        self._run = run
        self._most_open = most_open
        self._places = dict(places or {})
        self._sources: dict[Path, Source] = {}
        self._recent: OrderedDict[Path, Tail] = OrderedDict()
        """tails that hold descriptors, the one that gave lines last at the end"""
        for unit in run.journal_units:
            path = Path(f"journal:{unit}")
            source = self._sources[path] = Source(path, Kind(kinds.TEXT), reader=reader_for(Kind(kinds.TEXT)))
            source.tail = Journal(unit, cursor=self._resumed(source).cursor)

    def follow(self, paths: Iterable[str]) -> None:
        """Follows these paths, too."""
        new = [path for path in paths if path not in self._run.paths]
        self._run = self._run.model_copy(update={"paths": [*self._run.paths, *new]})

    def places(self) -> dict[Path, Place]:
        """Where the reading of each source stands. Asked behind a whole poll, never in the middle of one."""
        known = (source for source in self._sources.values() if source.kind is not None and source.warming is None)
        return {source.path: source.place() for source in known}

    def covers(self, path: Path) -> bool:
        """Whether the settings name this path, be it there or not."""
        names = [str(path), *(str(parent) for parent in path.parents)]
        return path in self._sources or any(n == p or fnmatchcase(n, p) for p in self._run.paths for n in names)

    def poll(self, now: float) -> Iterator[tuple[Source, Item]]:
        """Everything new of all files; files that match later are found."""
        return (found for found in self.steps(now) if found is not None)

    def steps(self, now: float) -> Iterator[tuple[Source, Item] | None]:
        """As `poll`, with None between the pieces of a long file: who has other duties sees to them there.

        `last_item` of the source is the time at which an item without a time of its own is taken to have happened:
        `now`, or of what was written before anybody looked the last write.
        """
        self._look()
        for source in list(self._sources.values()):
            try:
                written = source.path.stat().st_mtime if source.backlog and source.path.is_file() else now
                for item in self._items(source):
                    if item is None:
                        yield None
                        continue
                    source.items += 1
                    source.last_item = min(now, source.said_time or written)
                    if isinstance(item, (TokenBatch, Samples)):
                        item.lineage, item.attempt = attempts.of(source.path)
                        item.reading = source.rewritten
                    yield source, item
                source.backlog = source.backlog and source.tail is not None and source.tail.lag_bytes > 0
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                source.failures += reason != source.error
                source.error = reason
            self._bound(source)
            yield None

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

    def _items(self, source: Source) -> Iterator[Item | None]:
        if source.kind is None and not self._classify(source):
            return
        kind = source.kind
        if kind is None:
            return
        if kind.name in WHOLE:
            yield from self._whole(source, self._file_items)
        elif source.growing is not None:
            yield from self._whole(source, self._growing_items)
        elif source.reader is not None and source.tail is None:
            yield from self._whole(source, self._packed_items)
        elif source.tail is not None and source.reader is not None:
            if source.warming is not None and not self._warmed(source, source.reader):
                return
            again = isinstance(source.tail, Tail) and not source.path.is_fifo()
            for chunk in source.tail.poll():
                source.lines += len(chunk.lines)
                source.said_time = chunk.time
                if not again:
                    source.remember(chunk.lines)
                yield from source.reader.read(chunk.lines)
                yield None
            source.error = source.tail.error

    @staticmethod
    def _warmed(source: Source, reader: Reader) -> bool:
        """Shows a reader what a former process read, some of it at each poll; its items were taken in then."""
        left = _WARM_BYTES
        for lines in source.warming or ():
            for _ in reader.read(lines):
                pass
            left -= sum(map(len, lines))
            if left <= 0:
                return False
        source.warming = None
        return True

    def _resumed(self, source: Source) -> Place:
        """The place at which reading goes on, and what the source's reader must see before."""
        place = self._places.pop(source.path, Place())
        source.resume(place)
        if place.last_lines:
            source.warming = iter([list(place.last_lines)])
        elif place.position is not None and source.reader is not None and source.reader.looks_back:
            source.warming = lines_before(place.position, source.path)
        return place

    def _classify(self, source: Source) -> bool:
        """Learns what the file is, once it has enough in it to tell."""
        try:
            if source.path.is_fifo():  # a look at its head would wait, and take it away
                source.kind = Kind(kinds.TEXT)
                source.reader, source.tail = reader_for(source.kind), Tail(source.path)
                self._resumed(source)
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
            source.growing = binary.Growing(source.path, source.kind.name, self._resumed(source).offset)
        elif source.kind.name in WHOLE:
            if source.kind.name != kinds.FLIGHT:  # all ranks' dumps are compared, those from before as well
                self._resumed(source)
        else:
            source.reader = reader_for(source.kind, self._run.logging_steps, source.path)
            start = self._resumed(source).position
            if not is_gzip(source.path):
                source.tail = Tail(source.path, start, history=self._with_history(source.path))
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
