"""Finds the lines of any text log that say that something failed, stopped, resumed or changed, and makes them Events.

Promises: cheap on ordinary lines (one scan by a finite automaton); looks through Ray's, torchrun's, Slurm's and the
loggers' prefixes and through colours; a traceback is one event, with the functions it passed through as labels.
Never takes a sentence for an event that does not begin its message: completions in tables, dicts and JSON cannot
forge one; between `[response]` and the next `[...]` section of verl's sample printing nothing is read at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import re2

from posttrain_watchdog.model import Event
from posttrain_watchdog.sources.failure_patterns import PATTERNS, Pattern
from posttrain_watchdog.sources.host import kernel_log

_KERNEL = ("NVRM:", "oom-kill", "Out of memory: Kill", "mce: ", "AER: ", "I/O error", "fallen off the bus")
_TRACEBACK = "Traceback (most recent call last)"
_SAMPLE = "[response]"


def _by_needle() -> Mapping[str, tuple[Pattern, ...]]:
    words = dict.fromkeys(n for p in PATTERNS for n in p.needles)
    return MappingProxyType({word: tuple(p for p in PATTERNS if word in p.needles) for word in words})


_NEEDLES = _by_needle()
_HINTS = "|".join(re.escape(n) for n in (*_NEEDLES, *_KERNEL, _TRACEBACK, _SAMPLE))
_HINT = re2.compile(_HINTS)
_HINT_BYTES = re2.compile(_HINTS.encode())

_PREFIX = re.compile(
    r"(?:\s*(?:"
    r"\x1b?\[\d{0,2}(?:;\d+)*m"  # colour, with its escape or without it (some collectors drop it)
    r"|\((?P<actor>[A-Za-z_][\w.<>]*)(?: pid=(?P<pid>\d+))?(?:, ip=(?P<ip>[\d.a-fA-F:]+))?\)"
    r"|\[?(?:rank|Rank |default|worker)(?P<rank>\d+)\]:?"
    r"|(?<![\w.])\d{1,4}: (?=\S)"  # srun --label
    r"|\[?[IWEF]\d{3,4} [\d:.]+(?: \d+)?(?: [\w./]+:\d+)?\]"  # glog
    r"|\[[IWEF] [\w./]+:\d+\]"
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?(?: \w+)?(?: \d+)*\]?"
    r"|\d\d-\d\d \d\d:\d\d:\d\d(?: \[[\w./]+:\d+\])?"
    r"|\d\d:\d\d:\d\d(?:[.,]\d+)?"
    r"|\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\]?:?(?=[\s\[(]|$)"
    r"|\[?[\w./]+\.(?:py|cc|cpp):\d+\]?(?: -|:)?"
    r"|-|\||\+"
    r"|(?<=- )[\w.]+(?= - )"  # logger name between dashes
    r"|[\w.]+:(?:\[?(?:INFO|WARNING|ERROR|CRITICAL)\]?)(?=\s|:)"
    r"|torch\.distributed\.elastic\.\w+(?:\.\w+)*: \[(?:ERROR|WARNING)\]"
    r"|\(raylet\)"
    r")\s*)*\s*"
)
_COLOUR = re.compile(r"\x1b?\[\d{0,2}(?:;\d+)*m")
_REPEATED = re.compile(r"\[repeated (\d+)x across cluster\]")
_FRAME = re.compile(r'\s*File "([^"]+)", line \d+, in ([\w<>.]+)')
_EXCEPTION = re.compile(
    r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Iteration|Warning|Failure))(?::|$)"
)
_SECTION = re.compile(r"\[(?:prompt|ground_truth|score|reward|gts|answer)\]")
_MAX_FRAMES = 64
_MAX_OPEN = 32
_MAX_LINES = 400
_MAX_TEXT = 2000
_MAX_LINE = 16_384
"""What stands further right in a line is not looked at: messages begin at its start."""


@dataclass(slots=True)
class _Traceback:
    frames: list[str] = field(default_factory=list)
    lines: int = 0


def find(line: str) -> Event | None:
    """The event that this one line tells of, if any; without what the lines before it add."""
    hint = _HINT.search(line)
    return None if hint is None else _match(line, *_strip(line))


def _strip(line: str) -> tuple[str, dict[str, str]]:
    """The message without its prefixes, and what the prefixes tell (actor, pid, node, rank)."""
    line = line[:_MAX_LINE]
    if "[0m" in line:
        line = _COLOUR.sub("", line)  # some loggers colour words in the middle of the message
    head = _PREFIX.match(line)
    if head is None:
        return line, {}
    told = head.groupdict()
    labels = {
        name: told[key]
        for key, name in (("actor", "actor"), ("pid", "pid"), ("ip", "node"), ("rank", "rank"))
        if told[key]
    }
    return line[head.end() :], labels


def _match(line: str, body: str, who: dict[str, str]) -> Event | None:
    if any(word in line for word in _KERNEL):
        event = kernel_log.find(line)
        if event is not None:
            return event
    for needle, patterns in _NEEDLES.items():
        if needle not in body:
            continue
        for pattern in patterns:
            told = pattern.regex.match(body)
            if told is not None:
                own = {re.sub(r"\d$", "", k): v.strip() for k, v in told.groupdict().items() if v}
                labels = {**who, **pattern.labels, **own}
                repeated = _REPEATED.search(body)
                if repeated:
                    labels["repeated"] = repeated[1]
                step = labels.pop("step", None)
                return Event(pattern.kind, body[:_MAX_TEXT].rstrip(), labels, step=int(step) if step else None)
    return None


class FailureLines:
    """The same over the lines of one file in order, with tracebacks gathered by the process that prints them."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, ...], _Traceback] = {}
        self._sample = 0

    def feed(self, line: str) -> Iterable[Event]:
        """Events of one complete line (with or without its line break). Steps and times are the caller's to add."""
        if not self._open and not self._sample and _HINT.search(line) is None:
            return ()
        return tuple(self._read(line))

    def feed_chunk(self, chunk: bytes) -> Iterator[Event]:
        """The same for many complete lines at once, far cheaper where nothing happens: one scan, no loop over lines."""
        at = 0
        while at < len(chunk):
            if not self._open and not self._sample:
                hint = _HINT_BYTES.search(chunk, at)
                if hint is None:
                    return
                at = chunk.rfind(b"\n", at, hint.start()) + 1 or at
            end = chunk.find(b"\n", at)
            end = len(chunk) if end < 0 else end
            yield from self._read(chunk[at:end].decode("utf-8", "replace"))
            at = end + 1

    def _read(self, line: str) -> Iterator[Event]:
        body, who = _strip(line)
        if self._inside_sample(body):
            return
        key = (who.get("actor", ""), who.get("pid", ""), who.get("rank", ""))
        if body.startswith((_TRACEBACK, "Exception Group " + _TRACEBACK)):
            if len(self._open) >= _MAX_OPEN:
                self._open.pop(next(iter(self._open)))
            self._open[key] = _Traceback()
            return
        trace = self._open.get(key)
        if trace is not None:
            trace.lines += 1
            frame = _FRAME.match(body)
            if frame is not None:
                if len(trace.frames) < _MAX_FRAMES:
                    trace.frames.append(frame[2])
                return
        event = _match(line, body, who)
        raised = _EXCEPTION.match(body) if trace is not None else None
        if trace is not None and (raised or event or trace.lines > _MAX_LINES):
            del self._open[key]
            if event is None and raised is not None:
                event = Event("traceback", body[:_MAX_TEXT].rstrip(), dict(who))
            if event is not None:
                if raised is not None:
                    event.labels.setdefault("exception", raised[1])
                if trace.frames:
                    event.labels.setdefault("where", trace.frames[-1])
                    event.labels["stack"] = " > ".join(trace.frames[-8:])
        if event is not None:
            yield event

    def _inside_sample(self, body: str) -> bool:
        """Whether the line belongs to a completion that verl prints for people to read."""
        if body.startswith(_SAMPLE):
            self._sample = 1
        elif self._sample:
            self._sample = 0 if _SECTION.match(body) or self._sample > _MAX_LINES * 5 else self._sample + 1
        return self._sample > 0
