"""Readers: blocks of complete lines of one file in, items out; one for each kind that comes in lines.

Promises: a line that no reader knows costs little and says nothing; bytes that are no text are replaced, never a
reason to stop. Pure but for loading the reader's module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from posttrain_watchdog.model import Diagnosis, Event, Row, TokenBatch
from posttrain_watchdog.sources import flight_recorder, kinds
from posttrain_watchdog.sources.detection import GENERIC, Follower
from posttrain_watchdog.sources.engines import responses
from posttrain_watchdog.sources.engines.follow import EngineLines
from posttrain_watchdog.sources.engines.metrics import MetricsReader, ScrapeLog
from posttrain_watchdog.sources.engines.responses import Answer
from posttrain_watchdog.sources.failure_lines import FailureLines
from posttrain_watchdog.sources.flight_recorder import Dump
from posttrain_watchdog.sources.host import memory_table, process_findings, processes
from posttrain_watchdog.sources.kinds import Kind
from posttrain_watchdog.sources.samples import Sample, Samples, by_step, step_of
from posttrain_watchdog.sources.tokens import native
from posttrain_watchdog.sources.trainers import text

UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a record raises whose values are not what its form says."""


@dataclass(slots=True)
class Answers:
    """What an engine answered, for the run's monitor of engines: evidence of several files belongs together."""

    answers: list[Answer]
    step: int | None = None
    time: float | None = None


@dataclass(slots=True)
class RankDump:
    """What one rank's flight recorder held; only beside the other ranks' does it say who is behind."""

    dump: Dump
    step: int | None = None
    time: float | None = None


Item = Row | Event | TokenBatch | Samples | Diagnosis | Answers | RankDump
"""What a source gives; a Diagnosis where the source itself can tell (arguments that do not fit together)."""


class Reader(Protocol):
    """Turns blocks of complete lines into items."""

    def read(self, lines: Sequence[bytes]) -> Iterable[Item]: ...

    def close(self) -> Iterable[Item]: ...

    @property
    def dialect(self) -> str:
        """What the lines turned out to be, for people."""

    @property
    def looks_back(self) -> bool:
        """Whether what a line gives depends on the lines before it (a step told earlier, a counter's last value)."""


class LogReader:
    """Any text log: a trainer's dialect, an engine's, a table of memory, and the lines in which things go wrong."""

    looks_back = True

    def __init__(self, logging_steps: int = 1) -> None:
        self._trainer = Follower(logging_steps)
        self._engine = EngineLines()
        self._failures = FailureLines()
        self._memory: memory_table.Dialect | None = None
        self._begun = False

    @property
    def dialect(self) -> str:
        found = [self._trainer.dialect] if self._trainer.dialect != GENERIC else []
        if self._engine.engine:
            found.append(self._engine.engine)
        if self._memory is not None:
            found.append("memory table")
        return ", ".join(found) or GENERIC

    def read(self, lines: Sequence[bytes]) -> Iterator[Item]:
        for raw in lines:
            line = raw.decode("utf-8", "replace").rstrip("\r")
            if not self._begun and line.strip():
                # a table says so in its first line; a line like its header later on is a log's
                self._begun = True
                self._memory = memory_table.Dialect() if memory_table.recognises(line) else None
            if self._memory is not None:
                yield from self._memory.feed(line)
                continue
            yield from self._trainer.feed(line)
            yield from self._engine.feed(line)
            for event in self._failures.feed(line):
                if event.time is None:
                    event.time = text.stamp(text.bare(line))[0]
                yield event

    def close(self) -> Iterator[Item]:
        yield from self._trainer.close()
        yield from self._engine.close()


class TokenReader:
    """A dump of rollouts in lines: a batch of tokens a step, and what its samples say of rewards and lengths.

    `path` may say what the lines do not, such as the step. A form that holds one side only (`ONE_SIDED`) gives no
    tokens: half a comparison would look like missing data. A line that cannot be read is counted and hides no other.
    """

    looks_back = False

    def __init__(self, module: ModuleType, path: Path | None = None) -> None:
        self._module = module
        self._read = None if getattr(module, "ONE_SIDED", False) else _placed(module.read, path)
        self._sample = _placed(module.sample, path) if hasattr(module, "sample") else None
        self.unreadable = 0
        """lines that could not be read"""
        self.reason = ""
        """why not the last of them"""

    @property
    def dialect(self) -> str:
        return self._module.__name__.rpartition(".")[2]

    def read(self, lines: Sequence[bytes]) -> Iterator[Item]:
        if self._read is not None:
            faults = self.unreadable
            yield from self._tokens(lines)
            if self._sample is not None:
                self.unreadable = faults  # the same lines again
        if self._sample is not None:
            yield from by_step(self._samples(lines))

    def _tokens(self, lines: Sequence[bytes]) -> Iterator[TokenBatch]:
        """Halves what cannot be read until the line is found that is at fault."""
        try:
            batch: TokenBatch | None = self._read(lines) if self._read is not None else None
        except UNREADABLE as error:
            if len(lines) == 1:
                self._count(error)
                return
            for half in (lines[: len(lines) // 2], lines[len(lines) // 2 :]):
                yield from self._tokens(half)
            return
        if batch is not None and batch.sequences:
            yield from (part for _, part in batch.by_step())

    def _samples(self, lines: Sequence[bytes]) -> Iterator[Sample]:
        for line in lines:
            try:
                found = self._sample(native.load(line)) if self._sample is not None and line.strip() else None
                if found is not None:
                    step_of(found.step)
                    yield found
            except UNREADABLE as error:
                self._count(error)

    def _count(self, error: Exception) -> None:
        self.unreadable += 1
        self.reason = str(error) or type(error).__name__

    def close(self) -> Iterable[Item]:
        return ()


def _placed(read: Callable[..., Any], path: Path | None) -> Callable[..., Any]:
    """The function of a dialect, told where the lines come from if it asks."""
    return partial(read, path=path) if "path" in signature(read).parameters else read


class ScrapeReader:
    """An engine's /metrics, scraped again and again into one file."""

    dialect = ""
    looks_back = True

    def __init__(self) -> None:
        self._log = ScrapeLog()

    def read(self, lines: Sequence[bytes]) -> Iterator[Item]:
        yield from self._log.feed(lines)

    def close(self) -> Iterable[Item]:
        return ()


class WholeTextReader:
    """A file that says something only as a whole: its lines are collected, then `read_text` has them."""

    dialect = ""
    looks_back = True

    def __init__(self, read_text: Callable[[str], Iterator[Item]]) -> None:
        self._read_text = read_text
        self._lines: list[bytes] = []

    def read(self, lines: Sequence[bytes]) -> Iterable[Item]:
        self._lines += lines
        return ()

    def close(self) -> Iterator[Item]:
        yield from self._read_text(b"\n".join(self._lines).decode("utf-8", "replace"))


def metrics_file(content: str) -> Iterator[Item]:
    """One saved answer of /metrics."""
    row = MetricsReader().read(content)
    if row.values:
        yield row


def process_list(content: str) -> Iterator[Item]:
    """A captured list of processes: the arguments of trainers and engines, compared."""
    yield from compared(processes.discover(processes.read_list(content)))


class AnswerReader:
    """Requests and answers as a gateway or a rollout writes them."""

    dialect = ""
    looks_back = False

    def read(self, lines: Sequence[bytes]) -> Iterator[Item]:
        answers = list(responses.read(lines))
        if answers:
            yield Answers(answers)

    def close(self) -> Iterable[Item]:
        return ()


def compared(found: processes.Discovery) -> Iterator[Item]:
    """What the arguments of a discovery's processes show together."""
    for finding in process_findings.findings(found.trainers, found.engines):
        diagnosis = finding.diagnosis()
        if diagnosis is not None:
            yield diagnosis
    row = process_findings.row(found.trainers)
    if row.values:
        yield row


def read_flight_recorder(path: Path) -> Iterator[Item]:
    """One rank's dump. Raises OSError or ValueError with the reason."""
    rank = flight_recorder.rank_of(path)
    if rank is None:
        raise ValueError("the name of a flight-recorder dump ends with its rank, as torch writes it")
    yield RankDump(flight_recorder.read(path.read_bytes(), rank))


def reader_for(kind: Kind, logging_steps: int = 1, path: Path | None = None) -> Reader:
    """The reader of a kind that comes in lines; `path` is where they come from."""
    if kind.name == kinds.TOKENS:
        return TokenReader(kinds.token_dialects()[kind.dialect], path)
    if kind.name == kinds.SCRAPES:
        return ScrapeReader()
    if kind.name == kinds.METRICS:
        return WholeTextReader(metrics_file)
    if kind.name == kinds.RESPONSES:
        return AnswerReader()
    if kind.name == kinds.PROCESSES:
        return WholeTextReader(process_list)
    return LogReader(logging_steps)
