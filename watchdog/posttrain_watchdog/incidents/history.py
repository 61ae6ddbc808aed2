"""What is known of a run so far: every metric over the steps, the events, the pace of the steps.

Promises: bounded memory; missing means unknown. Steps that repeat after a resume overwrite the old ones, so baselines
carry over softly instead of starting anew. Never judges and never reads a clock.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from statistics import median

from posttrain_watchdog.incidents.track import EMPTY, Track
from posttrain_watchdog.model import Event, Row

_TRAINER = "posttrain_trainer_"
_OWN_LABELS = frozenset({"run", "source", "host", "instance"})
_MAX_TRACKS = 4096
_KEPT_EVENTS = 512
_KEPT_PACE = 64


class History:
    """Tracks by metric name (and labels, where they tell things apart), events by kind, step times."""

    def __init__(self) -> None:
        self.version = 0
        """grows with everything that is observed"""
        self.step: int | None = None
        """last step of the trainer"""
        self.first_step: int | None = None
        self.now: float | None = None
        """time of the last tick"""
        self.step_time: float | None = None
        """when the last new step was seen"""
        self.heard_time: float | None = None
        """when anything at all was last heard"""
        self.counts: Counter[str] = Counter()
        """events of all time, by kind"""
        self.breaks: list[int] = []
        """steps before which the run was interrupted, resumed or reconfigured"""
        self.finished = False
        self.pace: deque[float] = deque(maxlen=_KEPT_PACE)
        """seconds that recent steps took"""
        self._tracks: dict[str, dict[tuple[tuple[str, str], ...], Track]] = {}
        self._size = 0
        self._events: dict[str, deque[Event]] = {}
        self._arrived = 0.0

    # -- taking in

    def row(self, row: Row) -> None:
        self.version += 1
        self._arrived += 1.0
        if row.time is not None:
            self.heard_time = max(row.time, self.heard_time or row.time)
        at = float(row.step) if row.step is not None else row.time if row.time is not None else self._arrived
        trains = False
        for metric, value in row.values.items():
            by_labels = self._tracks.setdefault(metric.name, {})
            labels = metric.labels
            if labels:
                labels = tuple(pair for pair in labels if pair[0] not in _OWN_LABELS)
            track = by_labels.get(labels)
            if track is None:
                if self._size >= _MAX_TRACKS:
                    continue
                self._size += 1
                track = by_labels[labels] = Track()
            track.put(at, value)
            trains = trains or metric.name.startswith(_TRAINER)
        if row.step is not None:
            self._step(row.step, row.time)
            if trains:
                self.finished = False

    def _step(self, step: int, time: float | None) -> None:
        if self.first_step is None:
            self.first_step = step
        previous = self.step
        if previous == step:
            return
        self.step = step
        if previous is not None and step < previous:
            self.breaks.append(step)
        spent = self.track("posttrain_trainer_step_seconds").last
        if spent > 0:
            self.pace.append(spent)
        elif time is not None and self.step_time is not None and previous is not None and step > previous:
            gap = (time - self.step_time) / (step - previous)
            if gap > 0:
                self.pace.append(gap)
        self.step_time = time

    def event(self, event: Event) -> None:
        self.version += 1
        self.counts[event.kind] += 1
        if event.step is None and event.kind not in ("resumed", "run_started"):
            event = Event(event.kind, event.text, event.labels, self.step, event.time)
        self._events.setdefault(event.kind, deque(maxlen=_KEPT_EVENTS)).append(event)
        if event.time is not None:
            self.heard_time = max(event.time, self.heard_time or event.time)
        if event.kind == "run_finished":
            self.finished = True
        elif event.kind in ("resumed", "run_started", "preempted"):
            self.finished = False
            if self.step is not None:
                self.breaks.append(self.step + 1 if event.step is None else event.step + 1)
            if event.kind != "preempted":
                self.step_time = event.time

    def tick(self, now: float) -> None:
        """Gives the time to what came without one since the last tick."""
        if self.step is not None and self.step_time is None:
            self.step_time = now
        self.now = now

    # -- looking

    def track(self, name: str) -> Track:
        """The metric of that full name without telling labels; empty if it never came."""
        return self._tracks.get(name, {}).get((), EMPTY)

    def trainer(self, short: str) -> Track:
        """What the trainer logs under that short name (vocabulary.trainer)."""
        return self.track(_TRAINER + short)

    def tracks(self, name: str) -> Iterable[tuple[tuple[tuple[str, str], ...], Track]]:
        """All series of that name with their labels."""
        return self._tracks.get(name, {}).items()

    def names(self) -> Iterable[str]:
        return self._tracks.keys()

    def events(self, *kinds: str) -> list[Event]:
        """The last events of these kinds, in the order in which they came within a kind."""
        return [e for kind in kinds for e in self._events.get(kind, ())]

    @property
    def usual_step_seconds(self) -> float | None:
        """Median of the recent steps' durations; None while unknown."""
        return median(self.pace) if self.pace else None
