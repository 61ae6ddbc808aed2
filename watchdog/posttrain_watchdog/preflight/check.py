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
        if not complaints and not any(recognise(d) or d.syntax == "requirements" for d in found):
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
    samplers: list[View] = []
    for trainer in trainers:
        own = [e for e in engines if _samples_for(trainer, e)]
        samplers += own[:1]
        yield from sampling.judge(trainer, own[0] if own else None)
        yield from correction.judge(trainer)
        for engine in own:
            yield from both.judge(trainer, engine)
    hot = any(t.number("temperature") not in (None, 1.0) for t in trainers)
    for engine in engines:
        judged = any(engine is s for s in samplers)
        for finding in sampling.judge_engine(engine):
            # what raw logprobs do was said beside the trainer's temperature
            if not (judged and hot and finding.check == "logprobs-mode" and finding.severity == "warning"):
                yield finding


def _samples_for(trainer: View, engine: View) -> bool:
    """Does this server sample for this trainer? One that serves another model may be a judge or a teacher."""
    if not trainer.needs_correction and trainer.framework.name != "prime_rl":
        return False
    return trainer.framework.name in ("trl", "ms_swift") or both.same_model(trainer, engine) is not False


def _files(paths: Iterable[Path | str]) -> Iterator[Path]:
    for given in paths:
        path = Path(given)
        if path.is_dir():
            yield from sorted(p for p in path.iterdir() if p.is_file() and p.suffix.lower() in SUFFIXES)
        else:
            yield path
