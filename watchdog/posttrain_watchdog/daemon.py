"""The daemon: one event loop, jobs by APScheduler, the clock from clock.py; the rest is the pipeline.

Promises: somebody else's file, engine, driver or receiver never ends it; a job that raises is counted and named
in the log. The jobs run in one loop; reading and concluding wait for one another, and a long backlog is read in
pieces, between which the heartbeat, the page and delivery go on. What blocks (the driver) runs beside the loop.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import uvicorn
from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from posttrain_watchdog import __version__, clock
from posttrain_watchdog.alerting import kept
from posttrain_watchdog.alerting.delivery import from_config
from posttrain_watchdog.alerting.rules import RuleError
from posttrain_watchdog.config import Config, RunConfig
from posttrain_watchdog.continuity import Continuity, open_state, state_file
from posttrain_watchdog.discovery import look
from posttrain_watchdog.intake import Intake
from posttrain_watchdog.model import Event, Metric, Row
from posttrain_watchdog.notify import heartbeat_seconds, notify
from posttrain_watchdog.pipeline import Pipeline, Tick
from posttrain_watchdog.rulebook import inhibit_rules, load
from posttrain_watchdog.sources.engines.scraper import Scraper
from posttrain_watchdog.sources.host.kernel_log import KernelLog
from posttrain_watchdog.sources.host.memory import read as read_memory
from posttrain_watchdog.sources.host.nvml import NvmlPoller
from posttrain_watchdog.sources.readers import compared
from posttrain_watchdog.state import StateError
from posttrain_watchdog.status import Status
from posttrain_watchdog.web.app import LOOPBACK_HOSTS, create_app

log = logging.getLogger("posttrain_watchdog")

Listener = Callable[[Tick], None]
"""Is told of every tick (the demo prints what it brought)."""

_OWN = "posttrain_watchdog_"
_LONG_SECONDS = 0.1
"""of reading, after which the loop's other duties have their turn"""


class Daemon:
    """Wires sources -> series -> alerting -> delivery and keeps them going until it is stopped."""

    def __init__(self, config: Config, rule_paths: Sequence[Path], *, now: clock.Clock = clock.now) -> None:
        """Raises RuleError, StateError, ReceiverError, ValueError at the start; later a broken file changes nothing."""
        self.config = config
        self.listeners: list[Listener] = []
        self._rule_paths = list(rule_paths)
        self._now = now
        self.pipeline = Pipeline(config, load(self._rule_paths, config.alerting.language))
        self._state = open_state(state_file(config))
        for line in kept.restore(self._state, self.pipeline.evaluator):
            log.warning("%s", line)
        self._delivery = from_config(config, self._state, inhibit_rules=inhibit_rules())
        self._continuity = Continuity(self._state)
        self.intakes: dict[str, Intake] = {}
        self._scrapers: list[Scraper] = []
        self._nvml = NvmlPoller() if config.nvml.enabled else None
        self._kernel = KernelLog() if config.host.kernel_log else None
        self._kernel_note = ""
        self._degraded = ""
        self._scheduler = AsyncIOScheduler(timezone=timezone.utc)
        self._reading = asyncio.Lock()
        self._closing = False
        self.status = Status(self.pipeline, self.intakes, now, self.reload)
        self._set("build_info", 1.0, version=__version__)
        self._set("start_time_seconds", now())
        self._rules_loaded(ok=True)
        self.follow(*config.runs)

    def follow(self, *runs: RunConfig) -> None:
        """Follows runs from now on; one that is followed already gets what is new of it."""
        new = [run.name for run in runs if run.name not in self.intakes]
        for run in runs:
            self._follow(run)
        taken = self._continuity.restore(self.pipeline, new, self._now(), lambda run, p: self.intakes[run].covers(p))
        if taken:
            log.info("going on where a former process stopped: %d readings, events and samples kept", taken)

    def _follow(self, run: RunConfig) -> None:
        self.pipeline.run(run)
        known = self.intakes.get(run.name)
        if known is None:
            self.intakes[run.name] = Intake(run, places=self._continuity.places(run.name))
        else:
            known.follow(run.paths)
        scraped = {each.url for each in self._scrapers}
        for engine in run.engines:
            scraper = Scraper(run.name, engine.url, engine.name, engine.timeout, engine.interval)
            if scraper.url not in scraped:
                self._scrapers.append(scraper)
                if self._scheduler.running:
                    self._every(scraper.interval, self._scrape, scraper)

    def discover(self) -> None:
        """Looks for trainers and engines on this host: what a daemon without configured runs stands on."""
        if not self.config.host.processes:
            return
        found, run = look()
        if self._nvml is not None:
            self._nvml.roles = found.roles
        if not self.config.runs and (found.trainers or found.engines):
            self.follow(run)
        now = self._now()
        names = [r.name for r in self.config.runs] or [run.name]
        for name in names if found.trainers else ():
            for item in compared(found):
                if name in self.pipeline.runs:
                    self.pipeline.runs[name].take(item, now)

    def _set(self, short: str, value: float, **labels: str) -> None:
        self.pipeline.own.set(Metric(_OWN + short, labels), value)

    def _count(self, short: str, **labels: str) -> None:
        self.pipeline.own.increment(Metric(_OWN + short, labels))

    def _rules_loaded(self, *, ok: bool) -> None:
        self._set("rules_reload_successful", float(ok))
        if ok:
            self._set("rules_loaded", float(self.pipeline.evaluator.rules_loaded))
            self._set("rules_reload_timestamp_seconds", self._now())

    def reload(self) -> list[str]:
        """Loads the rule files again, whole or not at all; returns what is wrong with them."""
        try:
            rules = load(self._rule_paths, self.config.alerting.language)
        except RuleError as error:
            for fault in error.faults:
                log.error("rules not reloaded: %s", fault)
            self._rules_loaded(ok=False)
            return [str(fault) for fault in error.faults]
        self.pipeline.evaluator.replace(rules)
        self._rules_loaded(ok=True)
        log.info("%d rules in force", self.pipeline.evaluator.rules_loaded)
        return []

    def poll(self) -> None:
        """Reads what the files of every run have new."""
        for _ in self._steps():
            pass

    def _steps(self) -> Iterator[None]:
        """The pieces of one poll."""
        now = self._now()
        for name, intake in self.intakes.items():
            run = self.pipeline.runs[name]
            for found in intake.steps(now):
                yield
                if found is None:
                    continue
                source, item = found
                at = now if source.last_item is None else source.last_item
                run.take(item, at)
                self._continuity.note(name, source.path, at, item)
            self._continuity.save(name, intake.places())
            for source in intake.sources():
                path = str(source.path)
                self._set("source_up", float(not source.error), path=path, kind=source.label)
                self._set("parse_errors_total", float(source.parse_errors), path=path)
                if source.tail is not None:
                    self._set("lines_total", float(source.lines), path=path)
                    self._set("files_lost_total", float(source.files_lost), path=path)
                    self._set("source_lag_bytes", float(source.tail.lag_bytes), path=path)
                if source.last_item is not None:
                    self._set("source_last_data_timestamp_seconds", source.last_item, path=path)

    def tick(self) -> Tick:
        """Concludes, stores, evaluates the rules; tells the listeners."""
        self._set("series", float(self.pipeline.store.series))
        self._set("series_dropped_total", float(self.pipeline.dropped))
        started = clock.elapsed()
        tick = self.pipeline.tick(self._now())
        self._set("rule_evaluation_seconds", clock.elapsed() - started, group="all")
        for rule, failures in self.pipeline.evaluator.failures.items():
            self.pipeline.own.set(Metric(_OWN + "rule_evaluation_failures_total", {"rule": rule}), float(failures))
        self._keep(tick.time)
        for listener in self.listeners:
            listener(tick)
        return tick

    def _keep(self, now: float) -> None:
        """Writes down what must survive a restart, and who must be told."""
        try:
            kept.save(self._state, self.pipeline.evaluator)
            self._continuity.save_onsets(self.pipeline)
        except StateError as error:
            self._count("job_failures_total", job="keep")
            log.error("alerts are not kept over a restart: %s", error)
        self._delivery.take(self.pipeline.evaluator.alerts(), now)
        self._set("outbox_length", float(self._delivery.outbox_length))
        self._set("notifications_dropped_total", float(self._delivery.dropped))
        if self._delivery.degraded != self._degraded:
            self._degraded = self._delivery.degraded
            log.warning("outbox: %s", self._degraded or "on disk again")

    def look_at_host(self) -> None:
        """The kernel's log and this machine's memory; every run on it is concerned."""
        now = self._now()
        items: list[Row | Event] = list(self._kernel.poll()) if self._kernel is not None else []
        problem = self._kernel.problem if self._kernel is not None else None
        if problem and problem != self._kernel_note:
            log.warning("%s", problem)
        self._kernel_note = problem or ""
        memory = read_memory(now)
        if memory is not None:
            self.pipeline.own.add(memory)
            items.append(memory)
        for run in self.pipeline.runs.values():
            for item in items:
                run.hear(item, now)

    async def _scrape(self, scraper: Scraper) -> None:
        """Fetches the metrics of one engine; a slow one keeps no other waiting."""
        now = self._now()
        row, reason = await scraper.scrape(now)
        self._set("source_up", float(row is not None), path=scraper.url, kind="engine metrics")
        if row is not None:
            self.pipeline.runs[scraper.run].take(row, now)
        elif reason != scraper.said:
            log.warning("engine metrics %s: %s", scraper.url, reason)
        scraper.said = reason

    def finish(self) -> Tick:
        """Concludes from what is there: the files will not grow any more."""
        now = self._now()
        for name, intake in self.intakes.items():
            for _, item in intake.finish():
                self.pipeline.runs[name].take(item, now)
        tick = self.pipeline.tick(now, final=True)
        self._keep(now)
        for listener in self.listeners:
            listener(tick)
        return tick

    async def deliver(self) -> None:
        """Tells every Alertmanager and every receiver what it must know."""
        for attempt in await self._delivery.flush(self._now()):
            if attempt.outcome.ok:
                self._count("notifications_total", receiver=attempt.receiver)
            else:
                self._count("notifications_failed_total", receiver=attempt.receiver)
                log.warning("not delivered to %s: %s", attempt.receiver, attempt.outcome.detail)

    async def poll_gpus(self) -> None:
        """Asks the driver, in its own process."""
        if self._nvml is None:
            return
        poll = await asyncio.to_thread(self._nvml.poll, self._now())
        if poll.note:
            log.info("GPUs: %s", poll.note)
        for metric in poll.gone:
            self.pipeline.own.forget(metric)
        for row in poll.rows:
            self.pipeline.own.add(row)
        for run in self.pipeline.runs.values():
            for event in poll.events:
                run.take(event, self._now())
            for row in poll.rows:
                run.hear(row, self._now())

    # coroutines, because APScheduler gives plain functions to threads

    async def _poll(self) -> None:
        async with self._reading:
            last, steps = clock.elapsed(), self._steps()
            while not self._closing and next(steps, self) is None:
                if clock.elapsed() - last > _LONG_SECONDS:
                    await asyncio.sleep(0)
                    last = clock.elapsed()

    async def _look_at_host(self) -> None:
        self.look_at_host()

    async def _discover(self) -> None:
        async with self._reading:
            if not self._closing:
                self.discover()

    async def _tick(self) -> None:
        async with self._reading:  # half a backlog is the past: nobody is paged for it
            if not self._closing:
                self.tick()

    async def _beat(self) -> None:
        notify("WATCHDOG=1")

    def _schedule(self) -> None:
        config = self.config
        jobs: list[tuple[Callable[[], Awaitable[None]], float]] = [
            (self._poll, config.poll_interval),
            (self._tick, config.evaluation_interval),
        ]
        if self._delivery.names:
            jobs.append((self.deliver, min(5.0, config.evaluation_interval)))
        jobs.append((self._discover, 30.0))
        if self._nvml is not None:
            jobs.append((self.poll_gpus, config.nvml.interval))
        jobs.append((self._look_at_host, config.host.interval))
        if (beat := heartbeat_seconds()) is not None:
            jobs.append((self._beat, beat))
        for job, seconds in jobs:
            self._every(seconds, job)
        for scraper in self._scrapers:
            self._every(scraper.interval, self._scrape, scraper)
        self._scheduler.add_listener(self._job_failed, EVENT_JOB_ERROR)
        # a late tick is no news, and failures are told by the listener
        logging.getLogger("apscheduler").setLevel(logging.CRITICAL)

    def _every(self, seconds: float, job: Callable[..., Awaitable[None]], *given: Scraper) -> None:
        """Does a job now and again and again."""
        self._scheduler.add_job(
            job,
            "interval",
            args=given,
            seconds=max(seconds, 0.05),
            id=" ".join([job.__name__.lstrip("_"), *(each.url for each in given)]),
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
            next_run_time=datetime.now(timezone.utc),  # noqa: TID251 - APScheduler's own clock, not a time of the data
        )

    def _job_failed(self, event: JobExecutionEvent) -> None:
        self._count("job_failures_total", job=str(event.job_id))
        log.error("job %s failed: %r", event.job_id, event.exception)

    async def serve(self, *, until: Callable[[], bool] | None = None) -> None:
        """Runs until a signal comes, or until `until` says that the files will not grow any more, and concludes then.

        Raises OSError if the address is taken.
        """
        web = self.config.web
        try:
            family = socket.AF_INET6 if ":" in web.host else socket.AF_INET
            listening = socket.create_server((web.host, web.port), family=family)
        except OSError as error:
            await self.close()
            raise OSError(f"web.listen: cannot listen on {web.listen}: {error.strerror or error}") from None
        settings = uvicorn.Config(
            create_app(self.status, ["*"] if web.allow_remote else LOOPBACK_HOSTS),
            host=web.host,
            port=web.port,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
        )
        server = uvicorn.Server(settings)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
        self._schedule()
        self._scheduler.start()
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            while not server.started and not serving.done():
                await asyncio.sleep(0.01)
            if not serving.done():
                notify("READY=1")
                log.info("listening on http://%s, %d runs", web.listen, len(self.pipeline.runs))
            while not serving.done():
                if until is not None and until() and not server.should_exit:
                    async with self._reading:
                        self.poll()
                        self.finish()
                    server.should_exit = True
                await asyncio.wait([serving], timeout=0.1)
            await serving
        finally:
            notify("STOPPING=1")
            await self.close()

    async def close(self) -> None:
        """Lets files, children and connections go; what is being read is left for the next process."""
        self._closing = True
        async with self._reading:
            pass
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        for intake in self.intakes.values():
            intake.close()
        if self._nvml is not None:
            self._nvml.close()
        if self._kernel is not None:
            self._kernel.close()
        for scraper in self._scrapers:
            await scraper.close()
        await self._delivery.close()
        self._state.close()
