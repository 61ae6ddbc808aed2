"""The way of one tick, the same for the daemon and for replay: sources -> series -> causes -> rules -> alerts.

Promises: time is an argument; one sick run, source or rule never stops the others; what could not be done is
counted. Never opens a file or a socket: sources hand their items in, and transitions are handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from posttrain_watchdog.alerting.evaluation import Evaluator
from posttrain_watchdog.alerting.lifecycle import Transition
from posttrain_watchdog.alerting.rules import RuleSet
from posttrain_watchdog.config import Config, RunConfig
from posttrain_watchdog.consistency.redone import Redone
from posttrain_watchdog.incidents.monitor import Monitor as IncidentMonitor
from posttrain_watchdog.model import Diagnosis, Event, Metric, Row, TokenBatch
from posttrain_watchdog.promql.engine import Engine, EngineSettings
from posttrain_watchdog.series.live import LiveSeries
from posttrain_watchdog.series.store import Store, StoreSettings
from posttrain_watchdog.sources import flight_recorder
from posttrain_watchdog.sources.engines.monitor import EngineMonitor
from posttrain_watchdog.sources.flight_recorder import Dump
from posttrain_watchdog.sources.readers import Answers, Item, RankDump
from posttrain_watchdog.sources.sample_tally import SampleTally
from posttrain_watchdog.sources.samples import Samples

if TYPE_CHECKING:
    from posttrain_watchdog.consistency.monitor import Monitor as TokenMonitor

Observer = Callable[[Row | Event], None]
"""Is told of every row and event of a run, recomputed ones included (the go-live checklist pools them)."""

SPOKEN = 0.5
"""Confidence from which a cause is said aloud (DESIGN section 6)."""

_RECENT_STEPS = 20


class Run:
    """One training run: its live values, its monitors, its diagnoses."""

    def __init__(self, settings: RunConfig, config: Config) -> None:
        self.name = settings.name
        self.settings = settings
        self.live = LiveSeries({**settings.labels, "run": settings.name}, config.series.max_series)
        self.step: int | None = None
        self.finished = False
        self.diagnoses: list[Diagnosis] = []
        self.observers: list[Observer] = []
        self._config = config
        self._incidents = IncidentMonitor()
        self._engines = EngineMonitor(settings.temperature)
        self._budget = float(config.tokens.tokens_per_minute)
        self._budget_at = 0.0
        self._dumps: dict[int, Dump] = {}
        self._dumps_changed = False
        self._tokens: TokenMonitor | None = None
        self._samples = SampleTally()
        self._redone = Redone()
        self._filled: set[Metric] = set()
        self._from_sources: dict[tuple[str, tuple[tuple[str, str], ...]], Diagnosis] = {}
        self._published: set[str] = set()
        self._step_times: list[tuple[int, float]] = []
        self._log_counts_steps = False

    def take(self, item: Item, now: float) -> None:
        """Feeds one item. `now` stands in where the item has no time of its own."""
        if isinstance(item, Row):
            self._take_row(item, now)
        elif isinstance(item, Event):
            self._take_event(item, now)
        elif isinstance(item, TokenBatch):
            self._take_tokens(item, now)
        elif isinstance(item, Samples):
            self._take_samples(item)
        elif isinstance(item, Answers):
            self._engines.add(item.answers)
        elif isinstance(item, RankDump):
            self._dumps[item.dump.rank] = item.dump
            self._dumps_changed = True
        else:
            self._from_sources[item.cause, item.labels] = item

    def hear(self, item: Row | Event, now: float) -> None:
        """What concerns the run without being its own (host, GPUs): it is weighed, not shown as the run's."""
        if isinstance(item, Event):
            self._take_event(item, now)
        else:
            self._weigh(item)

    @property
    def onsets(self) -> dict[str, int]:
        """Since which step each cause is at work."""
        found = self._incidents.onsets
        return {**found, **self._tokens.onsets} if self._tokens is not None else dict(found)

    def recall(self, onsets: Mapping[str, int]) -> None:
        """Dates the causes at work back to when a former process first found them."""
        for monitor in (self._incidents, self._tokens):
            for cause in monitor.onsets if monitor is not None else ():
                if monitor is not None and cause in onsets:
                    monitor.onsets[cause] = min(monitor.onsets[cause], onsets[cause])

    def advance(self, now: float, *, final: bool = False) -> list[Diagnosis]:
        """Draws the conclusions of what came since the last call; publishes them as series."""
        self._compare_ranks(now)
        self._fill(now, final=final)
        found = list(self._from_sources.values())
        if self._tokens is not None:
            if final:
                self._tokens.flush()
            for row in self._tokens.rows():
                self.live.add(row)
                self._weigh(row)
            found += self._tokens.diagnoses()
        answered = self._engines.row(now)
        if answered.values:
            self.live.add(answered)
        found += self._engines.diagnoses()
        named = {d.cause for d in found if d.confidence >= SPOKEN}
        found += self._incidents.tick(now, named)
        for row in self._incidents.rows():
            self.live.add(row)
        self.diagnoses = ranked(found)
        self._publish(now)
        return self.diagnoses

    def _compare_ranks(self, now: float) -> None:
        """Flight recorders say who is behind only side by side."""
        if self._dumps_changed:
            self._dumps_changed = False
            for event in flight_recorder.compare(self._dumps):
                self._take_event(event, now)

    def _take_row(self, row: Row, now: float) -> None:
        self.live.add(row)
        self._weigh(row)
        if self._filled:
            self._filled -= row.values.keys()
        if row.step is not None:
            if not self._log_counts_steps:
                # dumps may count from 0 where the log counts from 1: side by side they would seem to go back and forth
                self._log_counts_steps = True
                self._step_times.clear()
            self._step_seen(row.step, now if row.time is None else row.time)

    def _take_event(self, event: Event, now: float) -> None:
        if event.time is None:
            event.time = now
        if event.kind == "run_finished":
            self.finished = True
        elif event.kind in ("run_started", "resumed"):
            self.finished = False
        self._engines.observe(event)
        labels = {"kind": event.kind}
        self.live.increment(Metric("posttrain_events_total", labels))
        self.live.set(Metric("posttrain_event_timestamp_seconds", labels), event.time)
        self._weigh(event)

    def _weigh(self, item: Row | Event) -> None:
        self._incidents.observe(item)
        for observer in self.observers:
            observer(item)

    def _take_tokens(self, batch: TokenBatch, now: float) -> None:
        if self._tokens is None:
            # here, because it brings torch with it: a daemon without samples never loads it
            from posttrain_watchdog.consistency.device import choose
            from posttrain_watchdog.consistency.monitor import Monitor
            from posttrain_watchdog.consistency.settings import Settings

            calibration = self._config.calibration
            self._tokens = Monitor(
                Settings(
                    cap=self._config.importance_sampling.cap,
                    initial_factor=calibration.initial_factor,
                    decay_steps=calibration.decay_steps,
                    correction_freq=calibration.correction_freq,
                    correction_window=calibration.correction_window,
                    device=choose(self._config.tokens.device, self._config.tokens.gpu_memory_bytes),
                )
            )
        kept = self._within_budget(batch, now)
        self._tokens.skip(batch.tokens - kept.tokens)
        self._tokens.observe(kept)
        steps = batch.step[batch.step >= 0]
        if steps.size and not self._log_counts_steps:
            self._step_seen(int(steps.max()), now)

    def _take_samples(self, part: Samples) -> None:
        old = self._redone.admit(part.step, part)
        if old is None:
            return
        for each in old:
            self._samples.forget(each)
        self._samples.add(part)

    def _fill(self, now: float, *, final: bool) -> None:
        """Publishes what samples say and no log does: one series never has two writers."""
        if final:
            self._samples.flush()
        for row in self._samples.rows():
            own = [m for m in row.values if m in self._filled or self.live.value(m) is None]
            self._filled.update(own)
            kept = Row({m: row.values[m] for m in own}, row.step, row.time, fills=True)
            self.live.add(kept)
            self._weigh(kept)
            if row.step is not None and not self._log_counts_steps:
                self._step_seen(row.step, now)
        for event in self._samples.events():
            self._take_event(event, now)

    def _within_budget(self, batch: TokenBatch, now: float) -> TokenBatch:
        """Thins a batch, evenly over its sequences, to what the configured tokens per minute leave."""
        from posttrain_watchdog.consistency.monitor import thin

        rate = self._config.tokens.tokens_per_minute
        since = max(0.0, now - self._budget_at)
        self._budget = min(float(rate), self._budget + since * rate / 60)
        self._budget_at = now
        kept = batch if batch.tokens <= self._budget else thin(batch, max(1, int(self._budget)))
        self._budget = max(0.0, self._budget - kept.tokens)
        return kept

    def _step_seen(self, step: int, at: float) -> None:
        if self._step_times and step <= self._step_times[-1][0]:
            if step == self._step_times[-1][0]:
                return
            self._step_times.clear()  # the run went back to a checkpoint
        if self._step_times and self._step_times[-1][1] == at:
            self._step_times.pop()  # read in one go: when each of them ended is not known
        self.step = step
        self._step_times = [*self._step_times[-_RECENT_STEPS:], (step, at)]
        self.finished = False

    def _publish(self, now: float) -> None:
        live = self.live
        if self.step is not None:
            live.set(Metric("posttrain_run_step"), float(self.step))
            live.set(Metric("posttrain_run_step_timestamp_seconds"), self._step_times[-1][1])
            live.set(Metric("posttrain_run_seconds_since_step"), max(0.0, now - self._step_times[-1][1]))
            pairs = zip(self._step_times, self._step_times[1:], strict=False)
            gaps = [(t2 - t1) / (s2 - s1) for (s1, t1), (s2, t2) in pairs]
            if gaps:
                live.set(Metric("posttrain_run_step_seconds_median"), median(gaps))
        live.set(Metric("posttrain_run_finished"), float(self.finished))
        spoken = {d.cause: d for d in reversed(self.diagnoses) if d.cause != "healthy"}
        for cause in self._published - set(spoken):
            # 0 rather than the end of the series: a cause that is withdrawn is a recovery, not missing data
            live.set(Metric("posttrain_diagnosis_confidence", {"cause": cause}), 0.0)
            live.forget(Metric("posttrain_diagnosis_first_step", {"cause": cause}))
        for cause, diagnosis in spoken.items():
            live.set(Metric("posttrain_diagnosis_confidence", {"cause": cause}), diagnosis.confidence)
            if diagnosis.first_step is not None:
                live.set(Metric("posttrain_diagnosis_first_step", {"cause": cause}), float(diagnosis.first_step))
        self._published |= set(spoken)


def ranked(diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Most confident first; one of a cause and its labels; `healthy` only where nothing else is said aloud."""
    best: dict[tuple[str, tuple[tuple[str, str], ...]], Diagnosis] = {}
    for each in diagnoses:
        known = best.get((each.cause, each.labels))
        if known is None or known.confidence < each.confidence:
            best[each.cause, each.labels] = each
    ordered = sorted(best.values(), key=lambda d: -d.confidence)
    if any(d.confidence >= SPOKEN and d.cause != "healthy" for d in ordered):
        ordered = [d for d in ordered if d.cause != "healthy"]
    return ordered


@dataclass(slots=True)
class Tick:
    """What one tick brought about."""

    time: float
    transitions: Sequence[Transition]
    diagnoses: Mapping[str, Sequence[Diagnosis]] = field(default_factory=dict)


class Pipeline:
    """All runs of one daemon, their store and their rules."""

    def __init__(self, config: Config, rules: RuleSet) -> None:
        self.config = config
        self.store = Store(StoreSettings(max_series=config.series.max_series, retention=config.series.retention))
        windows = "3.x" if config.promql_windows == "3" else "2.x"
        self.engine = Engine(
            self.store, EngineSettings(windows=windows, subquery_step=max(1.0, config.evaluation_interval))
        )
        self.evaluator = Evaluator(
            rules,
            self.engine,
            self.store,
            external_labels=config.alerting.external_labels,
            external_url=config.web.external_url,
        )
        self.ticks = 0
        self.runs: dict[str, Run] = {}
        self.own = LiveSeries(max_series=config.series.max_series)
        for name, value in config.limits.items():
            self.own.set(Metric("posttrain_limit", {"name": name}), value)

    def run(self, settings: RunConfig) -> Run:
        """The run of that name; made when it is first asked for."""
        found = self.runs.get(settings.name)
        if found is None:
            found = self.runs[settings.name] = Run(settings, self.config)
        return found

    def snapshots(self) -> list[tuple[Sequence[Metric], Sequence[float]]]:
        """What a scrape shows, run by run, then the daemon itself."""
        shown = [live.snapshot() for _, live in self._live()]
        return [(metrics, values.tolist()) for metrics, values in shown]

    def _live(self) -> list[tuple[str, LiveSeries]]:
        return [*((name, run.live) for name, run in self.runs.items()), ("", self.own)]

    @property
    def dropped(self) -> int:
        """Series and points that the caps refused or let go."""
        store = self.store.dropped_series + self.store.dropped_points
        return store + sum(live.dropped for _, live in self._live())

    def conclude(self, now: float, *, final: bool = False) -> dict[str, list[Diagnosis]]:
        """Draws every run's conclusions and stores every live value at `now`."""
        diagnoses = {name: run.advance(now, final=final) for name, run in self.runs.items()}
        for name, live in self._live():
            # one writer a part, handed the very sequence of last time: the store then resolves no series anew
            self.store.append(now, *live.snapshot(), writer=f"live;{name}")
        return diagnoses

    def tick(self, now: float, *, final: bool = False) -> Tick:
        """Concludes, and evaluates the rules that are due.

        A clock that was set back must not end the watch: until it has caught up, ticks share the newest time.
        """
        now = max(now, self.store.last_time or now)
        diagnoses = self.conclude(now, final=final)
        self.ticks += 1
        over = {name for name, run in self.runs.items() if run.finished}
        everything = bool(self.runs) and len(over) == len(self.runs)
        transitions = self.evaluator.evaluate(now, run_finished=everything, finished_runs=over)
        return Tick(now, transitions, diagnoses)
