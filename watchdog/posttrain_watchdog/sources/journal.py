"""Lines of one systemd unit from the journal: a `journalctl -f -o json` that is read without waiting.

Promises: messages in their order, each once, also when journalctl ends and is started again (it goes on after the
last cursor); a message of several lines gives several. No shell; the unit's name is an argument. Never raises for
what journalctl does: `error` says it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Any

import orjson

from posttrain_watchdog.sources.open_file import CHUNK, Chunk, OpenFile

MAX_RECORD = 16 << 20
_MICROSECONDS = re.compile(r"\d{1,17}")
Command = Callable[[str, str], Sequence[str]]


def journalctl(unit: str, cursor: str) -> list[str]:
    """The command that follows a unit from `cursor` on, or from the start of what the journal has."""
    after = [f"--after-cursor={cursor}"] if cursor else []
    return ["journalctl", "--follow", "--no-tail", "--output=json", "--quiet", f"--unit={unit}", *after]


class Journal:
    """One unit. Read like a Tail."""

    def __init__(self, unit: str, command: Command = journalctl, cursor: str = "") -> None:
        self.unit = unit
        self.cursor = cursor
        """the last record handed out; enough to go on after a restart"""
        self.error = ""
        self.lag_bytes = 0
        """the journal does not say what it still has"""
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._lines = OpenFile(MAX_RECORD)

    def poll(self, budget: int = 64 << 20) -> Iterator[Chunk]:
        """Messages since the last call, `budget` bytes of records at most."""
        self.error = ""
        try:
            process = self._process or self._start()
        except OSError as error:
            self.error = f"journalctl: {error.strerror or error}"
            return
        pipe = process.stdout
        while pipe is not None and budget > 0:
            try:
                data = os.read(pipe.fileno(), CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._ended(process)
                return
            budget -= len(data)
            for chunk in self._lines.take(data):
                for time, records in groupby(map(self._record, chunk.lines), key=itemgetter(0)):
                    messages = [message for _, those in records for message in those]
                    if messages:
                        yield Chunk(messages, chunk.offset, time)

    def finish(self) -> Iterator[Chunk]:
        """Nothing: the journal has whole messages only."""
        return iter(())

    def close(self) -> None:
        """Ends journalctl."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdout is not None:
            process.stdout.close()
        with suppress(OSError):
            process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command(self.unit, self.cursor),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        if process.stdout is not None:
            os.set_blocking(process.stdout.fileno(), False)
        self._process = process
        self._lines.restart()
        return process

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        self.close()
        self.error = f"journalctl ended with code {process.returncode}; it is started again"

    def _record(self, record: bytes) -> tuple[float | None, list[bytes]]:
        """(second in which it was written, its lines)"""
        try:
            found: Any = orjson.loads(record)
        except orjson.JSONDecodeError:
            return None, []
        if not isinstance(found, dict):
            return None, []
        cursor = found.get("__CURSOR")
        if isinstance(cursor, str):
            self.cursor = cursor
        written = found.get("__REALTIME_TIMESTAMP")
        time = (
            float(int(written) // 1_000_000) if isinstance(written, str) and _MICROSECONDS.fullmatch(written) else None
        )
        message = found.get("MESSAGE")
        if isinstance(message, list):  # bytes that are no text come as numbers
            message = bytes(b for b in message if isinstance(b, int) and 0 <= b < 256).decode("utf-8", "replace")
        return time, message.encode("utf-8", "replace").split(b"\n") if isinstance(message, str) else []
