"""A configuration for those who gave none: one run made of the trainers and engines that run on this host.

Promises: names what would be watched and what is in the way; starts nothing, reads no file's content.
"""

from __future__ import annotations

import socket
from pathlib import Path

from posttrain_watchdog.config import EngineEndpoint, RunConfig
from posttrain_watchdog.sources.host.processes import Discovery, discover

_IN_FOLDERS = ("*.jsonl", "*.log", "*/*.jsonl", "*/trainer_state.json", "**/events.out.tfevents*")
"""What is looked for in the folders that trainers write to."""


def found_run(found: Discovery) -> RunConfig:
    """The run that these processes make."""
    paths = [str(path) for path in found.log_files]
    paths += [str(folder / pattern) for folder in found.folders for pattern in _IN_FOLDERS]
    return RunConfig(
        name=socket.gethostname() or "run",
        paths=paths,
        journal_units=list(found.journal_units),
        engines=[EngineEndpoint(url=url) for url in found.metrics_urls],
        temperature=found.temperature,
    )


def look() -> tuple[Discovery, RunConfig]:
    """What runs on this host now."""
    found = discover()
    return found, found_run(found)


def report(found: Discovery) -> str:
    """What would be watched, for people."""
    lines: list[str] = []
    for title, processes in (("trainers", found.trainers), ("engines", found.engines)):
        lines.append(f"{title}:")
        lines += [f"  {p.pid} {p.name}" for p in processes] or ["  none found"]
    sections: tuple[tuple[str, list[Path] | list[str]], ...] = (
        ("files", found.log_files),
        ("folders", found.folders),
        ("engine metrics", found.metrics_urls),
        ("systemd units", found.journal_units),
        ("in the way", found.notes),
    )
    for title, entries in sections:
        if entries:
            lines.append(f"{title}:")
            lines += [f"  {entry}" for entry in entries]
    return "\n".join(lines) + "\n"
