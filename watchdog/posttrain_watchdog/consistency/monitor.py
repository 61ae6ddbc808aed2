"""Follows a run's tokens step by step: rows of statistics for every finished step, and the causes they show.

Promises: memory is bounded whatever the run's length; a step whose sequences arrive in several batches counts once,
one that a resumed run did again counts as it was done last; the same batches in the same order give the same rows and
diagnoses. Never reads a clock or a file, and loads torch only when tokens arrive.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import replace

import numpy as np

from posttrain_watchdog.consistency.calibration import Recommendation
from posttrain_watchdog.consistency.diagnosis import ALOUD, diagnose
from posttrain_watchdog.consistency.merge import merge
from posttrain_watchdog.consistency.ratios import Ratios, measure
from posttrain_watchdog.consistency.redone import Redone
from posttrain_watchdog.consistency.rows import row_of
from posttrain_watchdog.consistency.settings import Settings
from posttrain_watchdog.consistency.tempering import regressor
from posttrain_watchdog.consistency.window import History, Window
from posttrain_watchdog.model import Diagnosis, Row, TokenBatch

WINDOWS = (4, 16, 64)
"""lengths in steps of the windows that the causes judge"""
BLOCK = 16
"""neighbouring sequences that are kept together when a step is thinned: a misrouted one needs its partner"""


class Monitor:
    """observe() batches, drain rows(), read diagnoses(); flush() at the end of what there is."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._open: OrderedDict[int, list[TokenBatch]] = OrderedDict()
        self._measured: dict[int, Ratios] = {}
        self._kept: OrderedDict[int, TokenBatch] = OrderedDict()
        self._history = History()
        self._redone = Redone()
        self._rows: list[Row] = []
        self._recommended = Recommendation(self._settings)
        self._compared = 0
        self._skipped = 0
        self._fresh = False
        self._diagnoses: list[Diagnosis] = []
        self.onsets: dict[str, int] = {}

    def observe(self, batch: TokenBatch) -> None:
        """Takes the sequences of any number of steps. A step is finished when a later one arrives."""
        for step, whole in batch.by_step():
            old = self._redone.admit(step, whole)
            if old is None:
                continue
            for each in old:
                self._forget(each)
            for earlier in [s for s in self._open if s < step]:
                self._finish(earlier)
            part = self._within_budget(whole)
            ratios = measure(part, self._settings.cap, self._settings.device)
            if step in self._measured:
                self._measured[step].add(ratios)
            else:
                self._measured[step] = ratios
            self._open.setdefault(step, []).append(thin(part, self._settings.judged_tokens_per_step))

    def skip(self, tokens: int) -> None:
        """Counts tokens that were left out before they came here."""
        self._skipped += tokens

    def flush(self) -> None:
        """Finishes every step that has begun."""
        for step in sorted(self._open):
            self._finish(step)

    def rows(self) -> list[Row]:
        """One row for each step finished since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def diagnoses(self) -> list[Diagnosis]:
        """What the finished steps show now, most confident first."""
        if self._fresh:
            self._diagnoses = self._dated(diagnose(self._windows(), self._history.steps_seen))
            self._fresh = False
        return list(self._diagnoses)

    def _dated(self, found: list[Diagnosis]) -> list[Diagnosis]:
        """A cause that has been said aloud keeps its onset when the steps around it leave the windows."""
        dated = []
        for each in found:
            first = self.onsets.get(each.cause)
            if first is not None and each.first_step is not None and first < each.first_step:
                each = replace(each, first_step=first)  # noqa: PLW2901
            dated.append(each)
        self.onsets = {d.cause: d.first_step for d in dated if d.confidence >= ALOUD and d.first_step is not None}
        return dated

    def _within_budget(self, part: TokenBatch) -> TokenBatch:
        limit = self._settings.tokens_per_step
        if not limit or part.tokens <= limit:
            return part
        kept = thin(part, limit)
        self._skipped += part.tokens - kept.tokens
        return kept

    def _finish(self, step: int) -> None:
        parts = self._open.pop(step)
        ratios = self._measured.pop(step)
        late = step in self._history.rms
        if step in self._kept:
            parts = [self._kept[step], *parts]
        sample = thin(merge(parts), self._settings.judged_tokens_per_step)
        self._kept[step] = sample
        self._kept.move_to_end(step)
        for old in sorted(self._kept)[: -self._settings.judged_steps]:
            del self._kept[old]
        self._remember(step, sample)
        self._history.steps_seen += not late
        self._compared += ratios.tokens
        self._recommended.observe(ratios)
        self._rows.append(
            row_of(step, ratios, self._settings, self._recommended, compared=self._compared, skipped=self._skipped)
        )
        self._fresh = True

    def _forget(self, step: int) -> None:
        """A resumed run does the step again: what was written of it before counts no more."""
        self._open.pop(step, None)
        self._measured.pop(step, None)
        self._kept.pop(step, None)
        self._history.steps_seen -= step in self._history.rms
        self._history.forget(step)
        self._fresh = True

    def _remember(self, step: int, sample: TokenBatch) -> None:
        window = Window(sample)
        d, history = window.d, self._history
        history.rms[step] = math.sqrt(float((d**2).mean())) if len(d) else 0.0
        history.level[step] = float(np.sqrt(np.abs(d)).mean()) ** 2 if len(d) else 0.0
        history.abs_mean[step] = float(np.abs(d).mean()) if len(d) else 0.0
        history.drift[step] = float(d.sum())
        history.tokens[step] = len(d)
        fit = regressor(window) if len(d) else None
        history.fit_xx[step] = float((fit[0] ** 2).sum()) if fit else 0.0
        history.fit_xd[step] = float((fit[0] * fit[1]).sum()) if fit else 0.0
        if len(history.rms) > self._settings.history_steps:
            for old in sorted(history.rms)[: -self._settings.history_steps]:
                history.forget(old)
            self._redone.forget_before(min(history.rms))

    def _windows(self) -> list[Window]:
        steps = sorted(self._kept)
        lengths = [n for n in WINDOWS if n < len(steps)]
        spans = [*(steps[-n:] for n in lengths), steps]
        return [Window(self._tokens_of(span), self._history, whole=span == steps) for span in spans if span]

    def _tokens_of(self, span: list[int]) -> TokenBatch:
        limit = max(512, self._settings.judged_tokens // len(span))
        return merge([thin(self._kept[s], limit) for s in span])


def thin(batch: TokenBatch, limit: int) -> TokenBatch:
    """At most about `limit` tokens of the batch: whole sequences, in blocks of neighbours spread evenly over it."""
    if batch.tokens <= limit or batch.sequences <= 2:
        return batch
    share = limit / batch.tokens
    count = max(2, int(batch.sequences * share))
    blocks = max(1, count // BLOCK)
    size = max(2, count // blocks)
    starts = np.linspace(0, max(0, batch.sequences - size), blocks).astype(np.int64)
    rows = np.unique((starts[:, None] + np.arange(size)).ravel())
    return batch.select(rows[rows < batch.sequences].astype(np.int64))
