"""What a file is, told by its first kilobytes and never by its name alone.

A refusal gives its reason. Text of no special kind is a log: which dialect it speaks is found line by line.
"""

from __future__ import annotations

import gzip
import importlib
import pkgutil
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import msgspec

from posttrain_watchdog.sources import completion_tables, flight_recorder, swanlab_file, tokens, wandb_file
from posttrain_watchdog.sources.engines import request_log
from posttrain_watchdog.sources.tail import MAX_LINE
from posttrain_watchdog.sources.wire import masked_crc32c

HEAD = 256 << 10
FAR = 4 * MAX_LINE
"""Bytes within which the first line must end, however long it is."""
TEXT, TRAINER_STATE, TOKENS, TOKEN_FILE = "log", "trainer state", "token dump", "token file"
METRICS, SCRAPES, RESPONSES, EVENTS = "engine metrics", "engine scrapes", "engine responses", "tensorboard"
PROCESSES = "process list"
FLIGHT = "flight recorder"
WANDB, SWANLAB, COMPLETIONS = "wandb run", "swanlab run", "completions"
BINARY = frozenset({EVENTS, WANDB, SWANLAB})
"""Kinds of binary files that grow."""
_RUNS = {wandb_file.MAGIC: WANDB, swanlab_file.MAGIC: SWANLAB}
_MAGIC = {
    b"PK\x03\x04": "zip",
    b"PAR1": "parquet",
    b"\x80": "pickle",
    b"\x7fELF": "program",
    b"\x89PNG": "picture",
    b"SQLite format 3": "database",
}
_NEVER_TEXT = tuple(set(range(32)) - set(b"\t\n\v\f\r\x1b\b"))
"""Bytes that no text has, whatever its encoding."""
_BINARY_SHARE = 20
"""A log may have stray ones (a crash leaves NULs); from one in twenty bytes on it is no text."""
_PROCESS_HEAD = re.compile(rb"[ \t]*(?:[A-Z%+]+[ \t]+)*PID\b[^\n]*\b(?:COMMAND|CMD|ARGS)[ \t]*\r?\n")


@dataclass(frozen=True, slots=True)
class Kind:
    """`name` is one of the constants above; `dialect` names the module that reads it, where there are several."""

    name: str
    dialect: str = ""


class Refused(ValueError):
    """A file that is not read; the text is the reason."""


@cache
def token_dialects() -> dict[str, ModuleType]:
    """Every module of sources/tokens that can read a dump, by name."""
    found = {}
    for each in pkgutil.iter_modules(tokens.__path__):
        module = importlib.import_module(f"{tokens.__name__}.{each.name}")
        if hasattr(module, "recognises") or hasattr(module, "accepts"):
            found[each.name] = module
    # the native form is the widest: it takes what no framework's own form took
    return dict(sorted(found.items(), key=lambda each: each[0] == "native"))


def classify(path: Path) -> Kind:
    """The kind of a file. Raises Refused with the reason, also where it cannot be read."""
    try:
        head = _head(path)
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Refused(f"cannot be read: {reason}") from None
    if not head:
        raise Refused("is empty")
    for name, module in token_dialects().items():
        if hasattr(module, "accepts") and module.accepts(path):
            return Kind(TOKEN_FILE, name)
    if _is_event_file(head):
        return Kind(EVENTS)
    for magic, name in _RUNS.items():
        if head.startswith(magic):
            return Kind(name)
    if completion_tables.accepts(path):
        return Kind(COMPLETIONS)
    what = next((what for sign, what in _MAGIC.items() if head.startswith(sign)), None)
    if what is not None:
        raise Refused(f"is a {what} file of no known kind")
    if sum(head.count(bytes([sign])) for sign in _NEVER_TEXT) > len(head) // _BINARY_SHARE:
        raise Refused("is binary, expected a log, a dump or metrics")
    return _text_kind(head)


def incomplete(kind: Kind, path: Path, *, growing: bool) -> str:
    """Why a file of this kind must not be read yet, empty if it may be."""
    module = token_dialects().get(kind.dialect)
    ask = getattr(module, "incomplete", None)
    return str(ask(path, growing=growing)) if ask is not None else ""


def superseded(files: Iterable[tuple[Path, Kind]]) -> set[Path]:
    """Dumps whose steps a resumed run wrote again elsewhere: a step counts once."""
    paths: dict[str, list[Path]] = {}
    for path, kind in files:
        if kind.name in (TOKENS, TOKEN_FILE):
            paths.setdefault(kind.dialect, []).append(path)
    old: set[Path] = set()
    for name, those in paths.items():
        ask = getattr(token_dialects()[name], "superseded", None)
        if ask is not None:
            old |= ask(those)
    return old


def has_line(path: Path) -> bool:
    """Whether a file has a complete line, from which its kind can be told."""
    return b"\n" in _head(path)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            file.seek(0)
            return _first_lines(file)
    with gzip.open(path) as packed:
        return _first_lines(packed)


def _first_lines(file: BinaryIO | gzip.GzipFile) -> bytes:
    """The first kilobytes, and the whole of a first line that is longer, as those of token dumps are.

    A line that is too long to be read at all is passed over here as well: the file is what comes behind it.
    """
    head = file.read(HEAD)
    if b"\n" in head or b"\0" in head or len(head) < HEAD:
        return head
    parts, held = [head], len(head)
    while more := file.read(HEAD):
        held += len(more)
        if b"\n" in more:
            if held > MAX_LINE:
                return more.partition(b"\n")[2] + file.read(HEAD)
            return b"".join([*parts, more])
        if held <= MAX_LINE:
            parts.append(more)
        elif held > FAR:
            break
    return b"".join(parts)


def _is_event_file(head: bytes) -> bool:
    """TFRecord framing: a length of eight bytes and the checksum of just these."""
    return len(head) >= 12 and masked_crc32c(head[:8]) == int.from_bytes(head[8:12], "little")


def _text_kind(head: bytes) -> Kind:
    first = head.lstrip().partition(b"\n")[0].strip()
    if first == b"{" and b'"global_step"' in head and b'"log_history"' in head:
        return Kind(TRAINER_STATE)
    if head.startswith((b"# HELP ", b"# TYPE ")):
        return Kind(METRICS)
    if flight_recorder.recognises(head):
        return Kind(FLIGHT)
    if _PROCESS_HEAD.match(head):
        return Kind(PROCESSES)
    for line in head.split(b"\n")[:20]:
        record = _record(line)
        if record is None:
            continue
        if "log_history" in record and "global_step" in record and line.strip() == first:
            return Kind(TRAINER_STATE)  # behind other lines it is the last word of ms-swift's logging.jsonl
        for name, module in token_dialects().items():
            if hasattr(module, "recognises") and module.recognises(record):
                return Kind(TOKEN_FILE if hasattr(module, "read_file") else TOKENS, name)
        if isinstance(record.get("m"), dict) and isinstance(record.get("t"), (int, float)):
            return Kind(SCRAPES)
        if _is_response(record):
            return Kind(RESPONSES)
    return Kind(TEXT)


def _record(line: bytes) -> dict[str, Any] | None:
    line = request_log.without_stamp(line.strip())
    if not line.startswith(b"{"):
        return None
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError):
        try:
            found = msgspec.json.decode(
                line.replace(b"NaN", b"null").replace(b"-Infinity", b"null").replace(b"Infinity", b"null")
            )
        except (msgspec.DecodeError, UnicodeError):
            return None
    return found if isinstance(found, dict) else None


def _is_response(record: dict[str, Any]) -> bool:
    """An answer of an OpenAI-like or SGLang engine, bare or beside its request, or SGLang's own log of both."""
    if request_log.recognises(record):
        return True
    answer = record.get("response", record)
    if "request" in record and ("response" in record or "status" in record):
        return True
    return isinstance(answer, dict) and (isinstance(answer.get("choices"), list) or "meta_info" in answer)
