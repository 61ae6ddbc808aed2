"""Writes a bundled recording into a folder step by step, as its trainer and engine did, for the demo to follow.

Promises: what is written is the recording, byte for byte, cut only between lines; nothing is written twice.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

_PROGRESS = re.compile(rb"^\s*(?:\x1b\[[0-9;]*m)*\{'loss'")


@dataclass(frozen=True, slots=True)
class Part:
    """What one step adds to the run's two files."""

    step: int
    console: bytes
    tokens: bytes


def parts(recording: Path) -> Iterator[Part]:
    """The recording cut at its steps. Raises OSError where it is not there."""
    with gzip.open(recording / "stdout.log.gz") as file:
        console = _by_dict_line(file.read())
    with gzip.open(recording / "tokens.jsonl.gz") as file:
        tokens: dict[int, list[bytes]] = {}
        for line in file:
            tokens.setdefault(int(orjson.loads(line)["step"]), []).append(line)
    for step in sorted(tokens):
        yield Part(step, console[step] if step < len(console) else b"", b"".join(tokens[step]))
    yield Part(max(tokens, default=0) + 1, b"".join(console[len(tokens) :]), b"")


def _by_dict_line(text: bytes) -> list[bytes]:
    """Blocks that end with the trainer's line of a step; the last one is what follows it."""
    blocks, block = [], []
    for line in text.splitlines(keepends=True):
        block.append(line)
        if _PROGRESS.match(line):
            blocks.append(b"".join(block))
            block = []
    blocks.append(b"".join(block))
    return blocks


class Performer:
    """One recording on its way into a folder."""

    def __init__(self, recording: Path, folder: Path) -> None:
        self._parts = parts(recording)
        self.console = folder / "stdout.log"
        self.tokens = folder / "tokens.jsonl"
        folder.mkdir(parents=True, exist_ok=True)

    def perform(self) -> int | None:
        """Writes the next step and returns it; None once the recording has ended."""
        part = next(self._parts, None)
        if part is None:
            return None
        for path, content in ((self.tokens, part.tokens), (self.console, part.console)):
            with path.open("ab") as file:
                file.write(content)
        return part.step
