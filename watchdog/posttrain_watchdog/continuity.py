"""What a daemon knew before it was restarted: written down as it comes, and taken up again.

Promises: after a restart, by kill -9 or not, the runs, their series and their causes stand where they stood; every
line of a source gives its items once; an old event is as old as it was. Where the state file cannot be written the
watch goes on without, and says so once. Never opens a source.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from posttrain_watchdog.config import Config
from posttrain_watchdog.model import TokenBatch
from posttrain_watchdog.pipeline import Pipeline
from posttrain_watchdog.sources.checkpoints import Checkpoints, Place
from posttrain_watchdog.sources.readers import Item
from posttrain_watchdog.state import State, StateError

log = logging.getLogger("posttrain_watchdog")

Covers = Callable[[str, Path], bool]
"""Whether the settings of a run still name a source: (run, path)."""

ONSETS = "onsets"
"""area of the state: run -> cause -> first step"""
_FINEST = 30.0
"""seconds between the points of the past that are stored again: rules look back five minutes and more"""


class Continuity:
    """Of one daemon. Nothing is kept where the state is in memory alone."""

    def __init__(self, state: State) -> None:
        self.failures = 0
        self._state = state
        self._checkpoints = Checkpoints(state) if state.path is not None else None
        self._failing = ""

    def places(self, run: str) -> Mapping[Path, Place]:
        """Where the reading of the run's sources stopped."""
        if self._checkpoints is None:
            return {}
        try:
            return self._checkpoints.places(run)
        except StateError as error:
            log.error("what a former process knew cannot be read, all is read anew: %s", error)
            self._checkpoints = None
            return {}

    def note(self, run: str, path: Path, at: float, item: Item) -> None:
        """Takes note of an item of a source that was taken in at `at`."""
        if self._checkpoints is not None:
            self._checkpoints.note(run, path, at, _sample(item))

    def save(self, run: str, places: Mapping[Path, Place]) -> None:
        """Writes what was noted of the run together with where its sources stand now."""
        if self._checkpoints is None:
            return
        try:
            self._checkpoints.save(run, places)
        except StateError as error:
            self.failures += 1
            if str(error) != self._failing:
                log.error("what was read is not kept over a restart for now: %s", error)
            self._failing = str(error)
        else:
            self._failing = ""

    def save_onsets(self, pipeline: Pipeline) -> None:
        """Writes since when each cause is at work. Raises StateError."""
        if self._checkpoints is not None:
            self._state.replace(ONSETS, {name: run.onsets for name, run in pipeline.runs.items()})

    def restore(self, pipeline: Pipeline, runs: Collection[str], now: float, covers: Covers) -> int:
        """Takes up what is kept of these runs; returns how many items that were.

        Points of the past that the store would still hold at `now` are stored again, so that rules which look back
        find what they would have found; not where the store has begun already.
        """
        if self._checkpoints is None:
            return 0
        try:
            return self._restore(self._checkpoints, pipeline, runs, now, covers)
        except StateError as error:
            log.error("not all of what a former process knew could be read: %s", error)
            return 0

    def _restore(
        self,
        checkpoints: Checkpoints,
        pipeline: Pipeline,
        runs: Collection[str],
        now: float,
        covers: Covers,
    ) -> int:
        stores = pipeline.store.last_time is None
        begin, every = now - pipeline.config.series.retention, max(pipeline.config.evaluation_interval, _FINEST)
        taken, at, point = 0, -math.inf, 0.0
        for kept in checkpoints.items():
            if kept.run not in runs or not covers(kept.run, Path(kept.path)):
                continue
            at = min(max(kept.at, at), now)
            point = max(at, begin) if not taken else point
            while stores and point < at:
                pipeline.conclude(point)
                point += every
            pipeline.runs[kept.run].take(kept.item, at)
            taken += 1
        if taken and stores and at > begin:
            pipeline.conclude(at)
        for name, onsets in self._state.items(ONSETS).items():
            if name in runs:
                pipeline.runs[name].recall(onsets)
        if checkpoints.unread:
            log.warning("%d records of the state file could not be read", checkpoints.unread)
        return taken


def _sample(item: Item) -> Item:
    """As many tokens of a batch as the causes would look at."""
    if not isinstance(item, TokenBatch):
        return item
    # here, because it brings torch with it: a daemon without samples never loads it
    from posttrain_watchdog.consistency.monitor import thin
    from posttrain_watchdog.consistency.settings import Settings

    return thin(item, Settings().judged_tokens_per_step)


def open_state(path: Path | None) -> State:
    """The state, in memory where the file cannot be had: a full disk must not end the watch."""
    try:
        state = State(path)
    except StateError as error:
        log.error("state is kept in memory alone: %s", error)
        return State()
    if state.set_aside is not None:
        log.warning("the state file was damaged; it lies at %s now, and a new one was begun", state.set_aside)
    return state


def state_file(config: Config, environment: os._Environ[str] = os.environ) -> Path | None:
    """Where state is kept over a restart; None keeps it in memory."""
    if config.state:
        return Path(config.state)
    folder = environment.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(folder) / "state.sqlite" if folder else None
