"""Which trainer's dialect a log speaks: told by its lines, never by its name, and followed when it changes.

Promises: a line goes to one dialect; another dialect takes over only after two of its lines in a row, so that one
line inside a printed completion changes nothing; what no dialect knows goes to the generic one until a dialect
has spoken. The file's name is the registry: every module of sources/trainers with a `Dialect` is one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from functools import cache
from types import ModuleType
from typing import Protocol

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources import trainers
from posttrain_watchdog.sources.trainer_tables import table_for
from posttrain_watchdog.sources.trainers import text

GENERIC = "generic"
_HINTS = ("{'", '{"', "step:", "Step ", "StatsLogger", "pg=")
_LINES_TO_SWITCH = 2
_SURELY_UNKNOWN = 20
"""After so many records that only the generic dialect understood, the others are asked where it has nothing."""


class Dialect(Protocol):
    """One trainer's way of logging."""

    def feed(self, line: str) -> Iterable[Row | Event]: ...

    def close(self) -> Iterable[Row | Event]: ...


@cache
def dialects() -> dict[str, ModuleType]:
    """Name -> module, the generic one last."""
    found = {}
    for each in pkgutil.iter_modules(trainers.__path__):
        module = importlib.import_module(f"{trainers.__name__}.{each.name}")
        if hasattr(module, "Dialect"):
            found[each.name] = module
    return {**{k: v for k, v in found.items() if k != GENERIC}, GENERIC: found[GENERIC]}


def recognise(line: str) -> str | None:
    """The dialect that is sure of this line."""
    if not any(hint in line for hint in _HINTS):
        return None
    return next((name for name, module in dialects().items() if module.recognises(line)), None)


class Follower:
    """Follows one log through whatever dialects it speaks."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._logging_steps = logging_steps
        self._reader: Dialect = dialects()[GENERIC].Dialect(logging_steps, table_for)
        self.dialect = GENERIC
        self._other = ""
        self._others = 0
        self._unknown = 0
        self._before = ""

    def feed(self, line: str) -> Iterable[Row | Event]:
        """The readings and events of one line. Colour is taken off first: it may stand inside what tells a dialect."""
        line = text.uncoloured(line)
        if self.dialect != GENERIC:
            items = self._reader.feed(line)
            if items and (items := list(items)):
                self._others = 0
                return items
            name = recognise(line)
            if name is None or name == self.dialect:
                return ()
            self._others = self._others + 1 if name == self._other else 1
            self._other = name
            return self._switch(name, line) if self._others >= _LINES_TO_SWITCH else ()
        if "%|" in line or "= Epoch " in line:
            self._before = line
        if self._unknown >= _SURELY_UNKNOWN:
            items = self._reader.feed(line)
            if items and (items := list(items)):
                return items
            name = recognise(line)
            return self._switch(name, line) if name is not None else ()
        name = recognise(line)
        if name is not None:
            return self._switch(name, line)
        items = list(self._reader.feed(line))
        self._unknown += bool(items)
        return items

    def _switch(self, name: str, line: str) -> Iterator[Row | Event]:
        yield from self._reader.close()
        self._reader = dialects()[name].Dialect(self._logging_steps)
        self.dialect, self._others = name, 0
        if self._before and self._before is not line:
            # a progress bar or the head of an epoch in front of the first record may tell its step
            yield from self._reader.feed(self._before)
            self._before = ""
        yield from self._reader.feed(line)

    def close(self) -> Iterable[Row | Event]:
        """What the log's end completes."""
        return self._reader.close()
