"""What is known of a run so far: every metric over the steps, the events, the pace of the steps.

Promises: bounded memory; missing means unknown. Steps that repeat after a resume overwrite the old ones, so baselines
carry over softly instead of starting anew. Never judges and never reads a clock.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from statistics import median

from posttrain_watchdog.incidents.track import EMPTY, Track
from posttrain_watchdog.model import Event, Metric, Row

_TRAINER = "posttrain_trainer_"
_OWN_LABELS = frozenset({"run", "source", "host", "instance"})
_STEP_SECONDS = Metric("posttrain_trainer_step_seconds")
_REWOUND = 3
"""Rows below the last step after which the run is taken to have gone back."""
_MAX_TRACKS = 2048
_KEPT_BREAKS = 63
_KEPT_EVENTS = 512
_KEPT_PACE = 64


class History:
    """Tracks by metric name (and labels, where they tell things apart), events by kind, step times."""

    def __init__(self) -> None:
        self.version = 0
        """grows with everything that is observed"""
        self.step: int | None = None
        """last step of the trainer"""
        self.now: float | None = None
        """time of the last tick"""
        self.step_time: float | None = None
        """time that the source gives to the last new step"""
        self.step_seen: float | None = None
        """tick at which the last new step, or a new beginning, was first known: logs may lie about the time zone"""
        self.sync_seen: float | None = None
        """tick at which `open_sync` was first known"""
        self.heard: dict[str, float] = {}
        """when each rank was last heard, where lines tell ranks apart"""
        self.counts: Counter[str] = Counter()
        """events of all time, by kind"""
        self.breaks: list[int] = []
        """steps before which the run was interrupted, resumed or reconfigured"""
        self.finished = False
        self.interrupted: Event | None = None
        """the preemption that has not been followed by anything yet"""
        self.open_sync: Event | None = None
        """the update of the engine's weights that began and is not known to have ended"""
        self.since_step: list[Event] = []
        """events since the last new step"""
        self.pace: deque[float] = deque(maxlen=_KEPT_PACE)
        """seconds between recent steps as they are logged: a trainer that logs every tenth is heard every ten steps"""
        self._tracks: dict[str, dict[tuple[tuple[str, str], ...], Track]] = {}
        self._size = 0
        self._events: dict[str, deque[Event]] = {}
        self._arrived = 0.0
        self._trainer_heard = False
        self._below = 0
        self._jump = 1
        self._ticked: tuple[int, float] | None = None

    # -- taking in

    def row(self, row: Row) -> None:
        self.version += 1
        self._arrived += 1.0
        trains = not row.fills and any(m.name.startswith(_TRAINER) for m in row.values)
        self._trainer_heard = self._trainer_heard or trains
        if row.step is not None and (trains or not self._trainer_heard):
            # token statistics may count steps from 0 where the log counts from 1: the log's count wins
            self._step(row.step, row.time)
        at = float(row.step) if row.step is not None else row.time if row.time is not None else self._arrived
        for metric, value in row.values.items():
            by_labels = self._tracks.setdefault(metric.name, {})
            labels = metric.labels
            if labels:
                rank = next((v for k, v in labels if k == "rank"), None)
                if rank is not None and row.time is not None:
                    self.heard[rank] = row.time
                labels = tuple(pair for pair in labels if pair[0] not in _OWN_LABELS)
            track = by_labels.get(labels)
            if track is None:
                if self._size >= _MAX_TRACKS:
                    continue
                self._size += 1
                track = by_labels[labels] = Track()
            track.put(at, value)
        if row.step is not None and row.step == self.step:
            spent = row.values.get(_STEP_SECONDS)
            if spent is not None and spent > 0:
                self.pace.append(spent * self._jump)

    def _step(self, step: int, time: float | None) -> None:
        previous = self.step
        if previous is not None and step <= previous:
            # a second source that lags by a step is no rewind; several rows below the last step are one
            self._below += step < previous
            if self._below < _REWOUND:
                return
            self._rewind(step - 1)
        self._below = 0
        if previous is not None and step > previous and time is not None and self.step_time is not None:
            gap = time - self.step_time
            if gap > 0 and not len(self.trainer("step_seconds")):
                self.pace.append(gap)
        self._jump = 1 if previous is None else max(step - previous, 1)
        self.step = step
        self.step_time, self.step_seen = time, None
        self.finished = False
        self.interrupted = self.open_sync = None
        self.since_step.clear()

    def _rewind(self, last: int) -> None:
        """The run goes on after step `last`; what it logged beyond will come again."""
        self.breaks = [*self.breaks[-_KEPT_BREAKS:], last + 1]
        self.step = last
        for name, by_labels in self._tracks.items():
            if name.startswith(_TRAINER):
                for track in by_labels.values():
                    track.cut(last)

    def event(self, event: Event) -> None:
        self.version += 1
        self.counts[event.kind] += 1
        if event.step is None and event.kind not in ("resumed", "run_started"):
            event = Event(event.kind, event.text, event.labels, self.step, event.time)
        self._events.setdefault(event.kind, deque(maxlen=_KEPT_EVENTS)).append(event)
        if len(self.since_step) < _KEPT_EVENTS:
            self.since_step.append(event)
        if event.time is not None and event.labels.get("rank"):
            self.heard[event.labels["rank"]] = event.time
        if event.kind == "run_finished":
            self.finished = True
        elif event.kind == "preempted":
            self.interrupted = event
        elif event.kind in ("resumed", "run_started"):
            self.finished, self.interrupted, self.open_sync = False, None, None
            self.step_time, self.step_seen = event.time, None
            self.since_step.clear()
            if event.step is not None and self.step is not None and event.step < self.step:
                self._rewind(event.step)
            elif self.step is not None:
                self.breaks = [*self.breaks[-_KEPT_BREAKS:], self.step + 1]
        elif event.kind == "config_changed" and self.step is not None:
            self.breaks = [*self.breaks[-_KEPT_BREAKS:], self.step + 1]
        elif event.kind == "weight_sync_started":
            self.open_sync, self.sync_seen = event, None
        elif event.kind == "weights_synced":
            self.open_sync = None

    def tick(self, now: float) -> None:
        """Notes when what came since the last tick was first known."""
        if self.step is not None and self.step_seen is None:
            self.step_seen = now
            if self._ticked is not None and self.step_time is None and not len(self.trainer("step_seconds")):
                step, then = self._ticked
                if self.step > step and now > then:
                    self.pace.append(now - then)
            self._ticked = (self.step, now)
        if self.open_sync is not None and self.sync_seen is None:
            self.sync_seen = now
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
        """Median of the seconds between recent logged steps; None while unknown."""
        return median(self.pace) if self.pace else None
