"""The daemon's own wiring over finished logs and dumps, driven by the log's own clock.

Promises: the answer depends on the files alone (no clock, no network); what could not be read is named with its
reason; files of one folder are one run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posttrain_watchdog.alerting.rules import RuleSet
from posttrain_watchdog.config import Config, RunConfig
from posttrain_watchdog.feed import Feed, open_feeds
from posttrain_watchdog.model import Alert, Diagnosis, Metric, Row
from posttrain_watchdog.pipeline import SPOKEN, Observer, Pipeline, Run
from posttrain_watchdog.sources.readers import Item
from posttrain_watchdog.timeline import StepClock, step_of, timed
from posttrain_watchdog.web.page import DRAWN

SEVERITIES = ("info", "warning", "critical")
_MOST_TICKS = 2000
_MOST_IDLE_TICKS = 40

Progress = Callable[[str, float], None]
"""(what is being done, share done 0..1)"""


class NothingUsable(ValueError):
    """No input could be read at all; the text says why, a line a file."""


@dataclass(slots=True)
class AlertRecord:
    """One alert of the replay, from its first firing on."""

    alert: str
    severity: str
    cause: str | None
    labels: dict[str, str]
    annotations: dict[str, str]
    value: float
    first_step: int | None
    first_time: float
    last_step: int | None = None
    last_time: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "alert": self.alert,
            "severity": self.severity,
            "cause": self.cause,
            "first_step": self.first_step,
            "first_time": self.first_time,
            "last_step": self.last_step,
            "last_time": self.last_time,
            "value": self.value,
            "labels": self.labels,
            "annotations": self.annotations,
        }


@dataclass(slots=True)
class RunRecord:
    """What replay found in one run."""

    run: str
    steps: tuple[int, int] | None = None
    alerts: list[AlertRecord] = field(default_factory=list)
    diagnoses: list[Diagnosis] = field(default_factory=list)
    metrics: Mapping[str, float] = field(default_factory=dict)
    history: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """metric -> (step, value) for the report's drawings"""
    sources: list[tuple[str, str]] = field(default_factory=list)
    """(path, kind)"""

    def as_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "steps": list(self.steps) if self.steps else None,
            "alerts": [a.as_dict() for a in self.alerts],
            "diagnoses": [
                {
                    "cause": d.cause,
                    "confidence": d.confidence,
                    "first_step": d.first_step,
                    "last_step": d.last_step,
                    "tokens": d.tokens,
                    "summary": d.summary,
                    "evidence": dict(d.evidence),
                    "first_checks": list(d.first_checks),
                    "labels": dict(d.labels),
                }
                for d in self.diagnoses
            ],
            "metrics": dict(self.metrics),
        }


@dataclass(slots=True)
class Result:
    """Everything that `replay` says."""

    runs: list[RunRecord]
    unread: list[tuple[str, str]]
    """(path, reason)"""

    def as_dict(self) -> dict[str, Any]:
        return {
            "runs": [r.as_dict() for r in self.runs],
            "unread": [{"path": p, "reason": r} for p, r in self.unread],
        }

    def worst(self) -> str | None:
        """The highest severity that fired, None if none did."""
        fired = {a.severity for run in self.runs for a in run.alerts}
        return next((s for s in reversed(SEVERITIES) if s in fired), None)


def replay(
    paths: Iterable[Path],
    config: Config,
    rules: RuleSet,
    *,
    progress: Progress | None = None,
    observer: Observer | None = None,
) -> Result:
    """Replays every run under `paths`. Raises NothingUsable if no file of them can be read."""
    unread: list[tuple[str, str]] = []
    records: list[RunRecord] = []
    for name, members in runs_of(paths).items():
        settings = next((r for r in config.runs if r.name == name), None) or _settings(name, config)
        feeds, refused = open_feeds(members, settings)
        unread += refused
        if feeds:
            replayed = _Replayed(settings, config, rules, feeds, progress)
            if observer is not None:
                replayed.run.observers.append(observer)
            record = replayed.drive()
            unread += replayed.unread
            if record.sources:
                records.append(record)
    if not records:
        raise NothingUsable("\n".join(f"{path}: {reason}" for path, reason in unread) or "no file was given")
    return Result(records, unread)


def runs_of(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Run name -> files and folders: a folder is a run; files of one folder together are one."""
    runs: dict[str, list[Path]] = {}
    for path in paths:
        folder = path if path.is_dir() else path.parent
        name = folder.resolve().name or str(folder)
        runs.setdefault(name, []).append(path)
    return runs


def _settings(name: str, config: Config) -> RunConfig:
    """One configured run lends its settings to whatever is replayed."""
    if len(config.runs) == 1:
        return config.runs[0].model_copy(update={"name": name, "paths": []})
    return RunConfig(name=name)


class _Replayed:
    """One run on its way through the pipeline."""

    def __init__(
        self, settings: RunConfig, config: Config, rules: RuleSet, feeds: list[Feed], progress: Progress | None
    ) -> None:
        self._pipeline = Pipeline(config, rules)
        self.run: Run = self._pipeline.run(settings)
        self._feeds = feeds
        self._interval = config.evaluation_interval
        self._progress = progress
        self._record = RunRecord(settings.name)
        self.unread: list[tuple[str, str]] = []
        self._open: dict[tuple[tuple[str, str], ...], AlertRecord] = {}
        self._said: dict[tuple[str, tuple[tuple[str, str], ...]], Diagnosis] = {}
        self._step: int | None = None
        self._span = (0.0, 0.0)

    def _tell(self, what: str, share: float) -> None:
        if self._progress is not None:
            self._progress(what, share)

    def drive(self) -> RunRecord:
        """Feeds everything in the order in which it happened; returns what was found."""
        texts = [feed for feed in self._feeds if not feed.heavy]
        light: list[tuple[Feed, list[Item]]] = []
        for place, feed in enumerate(texts):
            self._tell(f"reading {Path(feed.path).name}", 0.5 * place / len(texts))
            light.append((feed, self._read(feed)))
        light = _without_repeats(light)
        clock = StepClock(item for _, items in light for item in items if isinstance(item, Row))
        streams = [timed(items, clock) for _, items in light]
        streams += [timed(self._stream(feed), clock) for feed in self._feeds if feed.heavy]
        merged = heapq.merge(*(_numbered(i, s) for i, s in enumerate(streams)), key=lambda each: each[:2])
        total = sum(1 for _, items in light for i in items if isinstance(i, Row) and i.step is not None)
        self._span = (clock.start, clock.end)
        self._feed(merged, max(1, total // _MOST_TICKS))
        self._tell(self._record.run, 1.0)
        record = self._record
        record.metrics = self.run.live.last()
        silent = {feed.path for feed in self._feeds if feed.heavy and not feed.items} - {p for p, _ in self.unread}
        self.unread += [(path, "holds nothing that can be judged") for path in sorted(silent)]
        record.sources = [(feed.path, feed.kind) for feed in self._feeds if feed.items]
        final = {(d.cause, d.labels): d for d in self.run.diagnoses}
        record.diagnoses = sorted({**self._said, **final}.values(), key=lambda d: -d.confidence)
        return record

    def _read(self, feed: Feed) -> list[Item]:
        """A file's items; one that turns out to be unreadable, or says nothing, is named with the reason."""
        items = list(self._stream(feed))
        if not items and not any(path == feed.path for path, _ in self.unread):
            self.unread.append((feed.path, "no line of it is known"))
        return items

    def _stream(self, feed: Feed) -> Iterator[Item]:
        try:
            for item in feed:
                feed.items += 1
                yield item
        except (OSError, ValueError) as error:
            self.unread.append((feed.path, str(error)))

    def _feed(self, merged: Iterator[tuple[float, int, Item]], stride: int) -> None:
        last_tick: float | None = None
        now = 0.0
        steps = 0
        for at, _, item in merged:
            step = step_of(item)
            fresh = step is not None and self._step is not None and step != self._step
            if last_tick is None:
                last_tick = at
            if at > now and (fresh or at >= last_tick + self._interval):
                steps += 1
                if steps % stride == 0 or at >= last_tick + self._interval:
                    self._tick(now)
                    self._idle(now, at)
                    last_tick = at
            now = max(now, at)
            if step is not None:
                self._seen(step)
            self.run.take(item, now)
        self._tick(now, final=True)

    def _seen(self, step: int) -> None:
        first, last = self._record.steps or (step, step)
        self._record.steps = (min(first, step), max(last, step))
        self._step = step

    def _idle(self, start: float, end: float) -> None:
        """Evaluates while nothing happens, as a live daemon would: this is how a stall is seen."""
        ticks = int((end - start) / self._interval)
        pace = self._interval * max(1, ticks / _MOST_IDLE_TICKS)
        at = start + pace
        while at < end - 1e-9:
            self._tick(at)
            at += pace

    def _tick(self, now: float, *, final: bool = False) -> None:
        tick = self._pipeline.tick(now, final=final)
        start, end = self._span
        if end > start:
            self._tell(
                f"{self._record.run}, step {self._step}", 0.5 + 0.5 * min(1.0, max(0.0, (now - start) / (end - start)))
            )
        if self._step is not None:
            for name, _ in DRAWN:
                value = self.run.live.value(Metric(name))
                if value is not None:
                    self._record.history.setdefault(name, []).append((self._step, value))
        for diagnosis in tick.diagnoses.get(self.run.name, ()):
            if diagnosis.confidence >= SPOKEN:
                self._said[diagnosis.cause, diagnosis.labels] = diagnosis
        for transition in tick.transitions:
            self._note(transition.alert, transition.state, now)

    def _note(self, alert: Alert, state: str, now: float) -> None:
        key = tuple(sorted(alert.labels.items()))
        if state == "firing" and key not in self._open:
            record = AlertRecord(
                alert=alert.name,
                severity=alert.labels.get("severity", ""),
                cause=alert.labels.get("cause"),
                labels=dict(alert.labels),
                annotations=dict(alert.annotations),
                value=alert.value,
                first_step=self._step,
                first_time=now,
            )
            self._open[key] = record
            self._record.alerts.append(record)
        elif state in ("resolved", "inactive") and key in self._open:
            ended = self._open.pop(key)
            ended.last_step, ended.last_time = self._step, now


def _without_repeats(light: list[tuple[Feed, list[Item]]]) -> list[tuple[Feed, list[Item]]]:
    """Leaves out a trainer_state.json whose steps a console has too: one run's steps count once."""
    told = {i.step for feed, items in light if not feed.is_state for i in items if isinstance(i, Row)}
    return [
        (feed, items)
        for feed, items in light
        if not (feed.is_state and {i.step for i in items if isinstance(i, Row)} <= told | {None})
    ]


def _numbered(number: int, stream: Iterator[tuple[float, Item]]) -> Iterator[tuple[float, int, Item]]:
    for at, item in stream:
        yield at, number, item
