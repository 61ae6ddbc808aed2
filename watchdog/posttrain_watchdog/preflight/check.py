"""Preflight: what is wrong with a run before it starts.

Promises: reads the given files alone, starts nothing, never raises for what a file holds; worst findings first.
Rule files and the daemon's own configuration are not its business (see `recognised`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from posttrain_watchdog.preflight.document import Document
from posttrain_watchdog.preflight.finding import Finding
from posttrain_watchdog.preflight.judges import both, correction, machine, sampling
from posttrain_watchdog.preflight.reading import read
from posttrain_watchdog.preflight.view import View, recognise, renamed, view

SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".sh", ".txt", ".py", ".cmd", "")


def check(paths: Iterable[Path | str], versions: Mapping[str, str] | None = None) -> list[Finding]:
    """Findings about trainer configurations and engine command lines, each alone and both sides together.

    `versions` names installed packages ("trl": "0.25.1"); those pinned in a requirements file among the paths are
    added. Where a version is not known the newest one that was read is assumed, and the finding says so.
    Folders are searched one level deep.
    """
    findings: list[Finding] = []
    documents: list[Document] = []
    for path in _files(paths):
        found, complaints = read(path)
        documents += found
        findings += complaints
        if found and not any(recognise(d) or d.syntax == "requirements" for d in found):
            findings.append(
                Finding(
                    "unrecognised",
                    "info",
                    str(path),
                    0,
                    "",
                    "no framework or engine is recognised in it",
                    "It was not checked.",
                )
            )
    views, _ = _views(documents, versions or {})
    for document in documents:
        if document.syntax == "requirements":
            findings += machine.judge_versions(document)
    findings += _judge(views)
    return sorted(dict.fromkeys(findings), key=lambda f: f.order)


def read_all(
    paths: Iterable[Path | str], versions: Mapping[str, str]
) -> tuple[list[Document], list[View], dict[str, str]]:
    """The documents in the files, those of them that a framework claims, and the versions that are known."""
    documents = [document for path in _files(paths) for document in read(path)[0]]
    return (documents, *_views(documents, versions))


def _views(documents: list[Document], versions: Mapping[str, str]) -> tuple[list[View], dict[str, str]]:
    pinned = {
        package: str(setting.value)
        for document in documents
        if document.syntax == "requirements"
        for package, setting in document.settings.items()
    }
    known = {**pinned, **versions}
    return [v for v in (view(d, known) for d in documents) if v is not None], known


def recognised(path: Path) -> bool:
    """Is this file a trainer configuration, an engine command line or a list of versions?"""
    documents, _ = read(path)
    return any(d.syntax == "requirements" or recognise(d) is not None for d in documents)


def _judge(views: list[View]) -> Iterator[Finding]:
    trainers = [v for v in views if v.framework.role == "trainer"]
    engines = [v for v in views if v.framework.role == "engine"]
    for found in views:
        yield from renamed(found)
        yield from machine.judge(found)
    for trainer in trainers:
        yield from sampling.judge(trainer, engines[0] if engines else None)
        yield from correction.judge(trainer)
        for engine in engines:
            yield from both.judge(trainer, engine)
    judged_with_trainer = engines[:1] if any(t.needs_correction for t in trainers) else []
    for engine in engines:
        if engine not in judged_with_trainer:
            yield from sampling.judge_engine(engine)
        elif engine.text("logprobs_mode") != "processed_logprobs":
            yield from (
                f for f in sampling.judge_engine(engine) if f.check != "logprobs-mode" or f.severity == "critical"
            )
            if engine.text("logprobs_mode") == "raw_logprobs" and all(
                t.number("temperature") in (None, 1.0) for t in trainers
            ):
                yield from (f for f in sampling.judge_engine(engine) if f.check == "logprobs-mode")


def _files(paths: Iterable[Path | str]) -> Iterator[Path]:
    for given in paths:
        path = Path(given)
        if path.is_dir():
            yield from sorted(p for p in path.iterdir() if p.is_file() and p.suffix.lower() in SUFFIXES)
        else:
            yield path
