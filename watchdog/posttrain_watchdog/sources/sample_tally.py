"""What the samples of a step add up to, however many files and blocks of lines they come in.

Promises: bounded memory; a step is told once, when a later one has begun or at the end; parts that arrive after that
are left out. Rows stand in for a log (`Row.fills`): where the trainer reports a number itself, its own word counts.
Pure: never reads a clock or a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.model import Event, Metric, Row
from posttrain_watchdog.sources.samples import Samples
from posttrain_watchdog.sources.trainers.completions import degenerate_event
from posttrain_watchdog.vocabulary.samples import PREFIX as OWN
from posttrain_watchdog.vocabulary.trainer import PREFIX

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_OPEN = 64
"""Steps whose samples are kept at once: files of many steps can be found together."""
_REMEMBERED = 4096
"""Steps known to have been told."""


@dataclass(slots=True)
class SampleTally:
    """add() parts, drain rows() and events(); flush() at the end of what there is."""

    _open: dict[int, list[Samples]] = field(default_factory=dict)
    _told: dict[int, None] = field(default_factory=dict)
    _newest: int = -1
    _rows: list[Row] = field(default_factory=list)
    _events: list[Event] = field(default_factory=list)

    def add(self, part: Samples) -> None:
        """Takes some samples of a step."""
        self._newest = max(self._newest, part.step)
        if part.step in self._told:
            return
        self._open.setdefault(part.step, []).append(part)
        if len(self._open) > _MOST_OPEN:
            self._finish(min(self._open))

    def forget(self, step: int) -> None:
        """The run does the step again."""
        self._open.pop(step, None)
        self._told.pop(step, None)
        self._newest = min(self._newest, step)

    def flush(self) -> None:
        """Finishes every step that has begun."""
        for step in sorted(self._open):
            self._finish(step)

    def rows(self) -> list[Row]:
        """One row for each step that is over and not told yet, ascending."""
        for step in sorted(s for s in self._open if s < self._newest):
            self._finish(step)
        rows, self._rows = self._rows, []
        return sorted(rows, key=lambda row: row.step or 0)

    def events(self) -> list[Event]:
        """Steps of the last rows() whose completions are no text any more."""
        events, self._events = self._events, []
        return events

    def _finish(self, step: int) -> None:
        parts = self._open.pop(step)
        self._told[step] = None
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]
        self._rows.append(Row(statistics(parts), step, fills=True))
        counts = {how: sum(p.degenerate.get(how, 0) for p in parts) for how in ("repeats", "empty")}
        examples = {how: text for p in reversed(parts) for how, text in p.examples.items()}
        self._events += degenerate_event(counts, sum(p.texts for p in parts), examples, step)


def statistics(parts: Sequence[Samples]) -> dict[Metric, float]:
    """The readings of one step; what its samples do not say is left out."""
    reward, length, truncated = (np.concatenate([getattr(p, n) for p in parts]) for n in _COLUMNS)
    group = np.concatenate([p.group for p in parts])
    values = {OWN: float(len(reward))}
    invalid = sum(p.invalid for p in parts)
    known = np.isfinite(reward)
    if known.any() or invalid:
        values[OWN + "_without_reward"] = float(invalid)
    if known.any():
        values |= {PREFIX + k: v for k, v in _rewards(reward[known], group[known]).items()}
    sizes = length[np.isfinite(length)]
    if len(sizes):
        for name, value in (("mean", sizes.mean()), ("min", sizes.min()), ("max", sizes.max())):
            values[f"{PREFIX}completion_length_{name}"] = float(value)
    said = np.isfinite(truncated)
    if said.any():
        values[PREFIX + "truncated_fraction"] = float(truncated[said].mean())
        ended = length[(truncated == 0) & np.isfinite(length)]
        if len(ended):
            values[PREFIX + "terminated_length_mean"] = float(ended.mean())
    return {Metric(name): value for name, value in values.items()}


_COLUMNS = ("reward", "length", "truncated")


def _rewards(reward: NDArray[np.float64], group: NDArray[np.int64]) -> Mapping[str, float]:
    """Spread within groups where there are any: two samples of one prompt or more."""
    found = {"reward_mean": reward.mean(), "reward_min": reward.min(), "reward_max": reward.max()}
    _, member, size = np.unique(group, return_inverse=True, return_counts=True)
    many = size > 1
    if (group >= 0).all() and many.any():
        mean = np.bincount(member, reward) / size
        variance = np.bincount(member, (reward - mean[member]) ** 2)[many] / (size[many] - 1)
        found["reward_std"] = np.sqrt(variance).mean()
        low = np.full(len(size), np.inf)
        high = np.full(len(size), -np.inf)
        np.minimum.at(low, member, reward)
        np.maximum.at(high, member, reward)
        found["zero_std_fraction"] = np.isclose(low[many], high[many], rtol=1e-9, atol=1e-12).mean()
    elif len(reward) > 1:
        found["reward_std"] = reward.std(ddof=1)
    return {name: float(value) for name, value in found.items()}
