"""Who is told what: Alertmanagers get every alert again and again, direct receivers get notifications by the outbox.

Promises: what was decided is on disk before it is sent; receivers are told side by side, and a dead one blocks no
other; nothing here loops or sleeps: `take` decides, `flush` makes one attempt at what is due, and the caller calls
both regularly. Where the disk fails (full, gone) the outbox goes on in memory, `degraded` says so, and every minute it
is tried to move back. Inhibition is for direct receivers only: an Alertmanager has its own (the same file).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain_watchdog.alerting.alertmanager import Alertmanager
from posttrain_watchdog.alerting.circuit import Circuit
from posttrain_watchdog.alerting.grouping import Ledger, Ledgers, Route, Scene, key, plan
from posttrain_watchdog.alerting.inhibition import Inhibitor
from posttrain_watchdog.alerting.notification import Notice, notice
from posttrain_watchdog.alerting.outbox import Outbox
from posttrain_watchdog.alerting.receivers import build, read_secret
from posttrain_watchdog.alerting.transport import Outcome, Receiver, ReceiverError
from posttrain_watchdog.config import AlertingConfig, AlertmanagerConfig, Config, ReceiverConfig, seconds
from posttrain_watchdog.model import Alert
from posttrain_watchdog.state import State, StateError

_LEDGERS = "told"
_RETURN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to tell one receiver."""

    receiver: str
    outcome: Outcome


class Delivery:
    """All receivers of one daemon."""

    def __init__(
        self,
        state: State,
        *,
        alertmanagers: Sequence[Alertmanager] = (),
        receivers: Sequence[tuple[Route, Receiver]] = (),
        inhibitor: Inhibitor | None = None,
        external_labels: Mapping[str, str] | None = None,
        external_url: str = "",
    ) -> None:
        """Raises StateError."""
        self._disk = self._state = state
        self._outbox = Outbox(state)
        self._degraded_at = 0.0
        self.degraded = ""
        """why the outbox is in memory; empty while it is where it should be"""
        self._alertmanagers = list(alertmanagers)
        self._receivers = list(receivers)
        self._inhibitor = inhibitor or Inhibitor()
        self._external_labels = dict(external_labels or {})
        self._external_url = external_url
        self._alerts: list[Alert] = []
        self._circuits = {name: Circuit() for name in self.names}
        self._ledgers: Ledgers = {}
        for name, data in state.items(_LEDGERS).items():
            try:
                self._ledgers[name] = Ledger(**data)
            except TypeError:
                continue  # of an older version: the group is told once more
        self._outbox.keep_only([route.receiver for route, _ in self._receivers])

    @property
    def names(self) -> list[str]:
        """Every receiver; Alertmanagers by their URL."""
        return [a.url for a in self._alertmanagers] + [route.receiver for route, _ in self._receivers]

    @property
    def outbox_length(self) -> int:
        """Notifications decided and not yet delivered."""
        return len(self._outbox)

    @property
    def dropped(self) -> int:
        """Notifications given up since the start."""
        return self._outbox.dropped

    def take(self, alerts: Iterable[Alert], now: float) -> None:
        """Decides from all alerts as they stand who must be told; writes it down whole or not at all."""
        self._alerts = list(alerts)
        if not self._receivers:
            return
        self._return_to_disk(now)
        notices = [n for a in self._alerts if (n := notice(a, self._external_labels)) is not None]
        scene = Scene(notices, self._muted(notices), self._external_url)
        try:
            self._decide(scene, now)
        except StateError as error:
            self._degrade(error, now)
            self._decide(scene, now)

    def _decide(self, scene: Scene, now: float) -> None:
        ledgers = {n: Ledger(dict(ledger.told), ledger.last, ledger.waiting) for n, ledger in self._ledgers.items()}
        with self._state.transaction():
            for route, _ in self._receivers:
                for each in plan(route, scene, ledgers, now):
                    self._outbox.put(key(route.receiver, each.group), each, now)
            self._state.replace(_LEDGERS, {name: ledger.as_dict() for name, ledger in ledgers.items()})
        self._ledgers = ledgers

    def _degrade(self, error: StateError, now: float) -> None:
        """Goes on in memory: a full disk is no reason to be silent."""
        if self._state is not self._disk:
            return
        box = Outbox(State())
        # what cannot be read is lost to this process, and there again after a restart
        with contextlib.suppress(StateError):
            box.fill(self._outbox.rows())
        box.dropped = self._outbox.dropped
        self._state, self._outbox = box.state, box
        self.degraded, self._degraded_at = str(error), now

    def _return_to_disk(self, now: float) -> None:
        if self._state is self._disk or now - self._degraded_at < _RETURN_SECONDS:
            return
        self._degraded_at = now
        try:
            with self._disk.transaction():
                box = Outbox(self._disk)
                box.fill(self._outbox.rows())
                self._disk.replace(_LEDGERS, {name: ledger.as_dict() for name, ledger in self._ledgers.items()})
        except StateError as error:
            self.degraded = str(error)
            return
        box.dropped = self._outbox.dropped
        self._state, self._outbox, self.degraded = self._disk, box, ""

    def _muted(self, notices: Sequence[Notice]) -> dict[str, str]:
        firing = [n for n in notices if n.firing]
        found = self._inhibitor.muted([n.labels for n in firing])
        return {firing[target].fingerprint: firing[source].name for target, source in found.items()}

    async def flush(self, now: float) -> list[Attempt]:
        """One attempt at everything that is due, receivers side by side."""
        jobs = [self._tell(each, now) for each in self._alertmanagers]
        jobs += [self._deliver(route, receiver, now) for route, receiver in self._receivers]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        attempts: list[Attempt] = []
        for name, result in zip(self.names, results, strict=True):
            if isinstance(result, StateError):
                self._degrade(result, now)
                attempts.append(Attempt(name, Outcome(False, True, str(result))))
            elif isinstance(result, BaseException):
                # a fault of ours in one receiver is no reason to leave the others untold
                self._circuits[name].failed(now)
                attempts.append(Attempt(name, Outcome(False, True, f"{type(result).__name__}: {result}")))
            else:
                attempts += result
        return attempts

    async def _tell(self, alertmanager: Alertmanager, now: float) -> list[Attempt]:
        circuit = self._circuits[alertmanager.url]
        if not circuit.closed(now):
            return []
        outcome = await alertmanager.send(self._alerts, now)
        if outcome.ok:
            circuit.succeeded()
            return [Attempt(alertmanager.url, outcome)] if outcome.detail else []
        circuit.failed(now, outcome.retry_after)
        return [Attempt(alertmanager.url, outcome)]

    async def _deliver(self, route: Route, receiver: Receiver, now: float) -> list[Attempt]:
        circuit, attempts = self._circuits[route.receiver], []
        if not circuit.closed(now):
            return []
        for message in self._outbox.due(route.receiver, now, circuit.at_once):
            outcome = await receiver.send(message.notification, now)
            attempts.append(Attempt(route.receiver, outcome))
            if outcome.ok:
                circuit.succeeded()
                self._outbox.delivered(message)
            elif outcome.retry:
                circuit.failed(now, outcome.retry_after)
                self._outbox.failed(message, now, retry_after=outcome.retry_after)
                break
            else:
                self._outbox.refused(message)
        return attempts

    async def close(self) -> None:
        for each in self._alertmanagers:
            await each.close()
        for _, receiver in self._receivers:
            await receiver.close()


def routes(settings: AlertingConfig, *, environ: Mapping[str, str] = os.environ) -> list[tuple[Route, Receiver]]:
    """The direct receivers of a configuration. Raises ReceiverError."""
    found: list[tuple[Route, Receiver]] = []
    for config in settings.receivers:
        if any(route.receiver == config.name for route, _ in found):
            raise ReceiverError(f"receiver {config.name!r} stands twice")
        found.append((_route(config), build(config, language=settings.language, environ=environ)))
    return found


def _route(config: ReceiverConfig) -> Route:
    options, default = config.options, Route(config.name)
    try:
        group_by = options.get("group_by", default.group_by)
        if isinstance(group_by, str):
            raise ValueError("group_by: expected a list of label names")
        return Route(
            receiver=config.name,
            severities=frozenset(config.severities),
            group_by=tuple(str(name) for name in group_by),
            wait=seconds(options.get("group_wait", default.wait)),
            interval=seconds(options.get("group_interval", default.interval)),
            repeat=seconds(options.get("repeat_interval", default.repeat)),
            send_resolved=bool(options.get("send_resolved", True)),
        )
    except (TypeError, ValueError) as error:
        raise ReceiverError(f"receiver {config.name!r}: {error}") from None


def from_config(
    config: Config,
    state: State,
    *,
    inhibit_rules: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Delivery:
    """Everything that the configuration's `alerting` names. Raises ReceiverError, InhibitionError, StateError."""
    settings = config.alerting
    url = config.web.external_url or f"http://{config.web.listen}/"
    alertmanagers = [_alertmanager(each, config, url) for each in settings.alertmanagers]
    return Delivery(
        state,
        alertmanagers=alertmanagers,
        receivers=routes(settings, environ=environ),
        inhibitor=None if inhibit_rules is None else Inhibitor.load(inhibit_rules),
        external_labels=settings.external_labels,
        external_url=url,
    )


def _alertmanager(settings: AlertmanagerConfig, config: Config, url: str) -> Alertmanager:
    files = {"password_file": settings.password_file, "token_file": settings.bearer_token_file}
    password, token = (read_secret(settings.url, name, files, {}) for name in ("password", "token"))
    return Alertmanager(
        settings.url,
        resend_delay=config.alerting.resend_delay,
        timeout=settings.timeout,
        external_labels=config.alerting.external_labels,
        generator_url=url,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        auth=(settings.basic_auth_user, password) if settings.basic_auth_user else None,
    )
