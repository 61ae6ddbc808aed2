"""Reads a log as the pipeline does: the trainer's dialect and the failure lines, line by line."""

from __future__ import annotations

from pathlib import Path

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.detection import Follower
from posttrain_watchdog.sources.failure_lines import FailureLines


def read(path: Path) -> list[Row | Event]:
    dialect, failures = Follower(), FailureLines()
    items: list[Row | Event] = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        items += dialect.feed(line)
        items += failures.feed(line)
    return [*items, *dialect.close()]
