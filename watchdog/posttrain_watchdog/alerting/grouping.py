"""When to tell whom: alerts gathered in groups, symptoms left out, nothing said twice without need.

Promises: pure; what was said is a plain `Ledger` that is kept over a restart, so a restart repeats nothing. As
Alertmanager's dispatcher and notification log (dispatch/dispatch.go, notify/notify.go DedupStage), in one place: a
group waits `wait` for the rest of the story before it is first told, then at most every `interval` while it changes,
and again every `repeat` while it fires. A resolved alert is told only to those who heard of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from posttrain_watchdog.alerting.notification import Notice, Notification


@dataclass(frozen=True, slots=True)
class Route:
    """Which alerts one receiver gets, and how often. Seconds."""

    receiver: str
    severities: frozenset[str] = frozenset()
    """empty takes all; an alert without a severity always passes"""
    group_by: tuple[str, ...] = ("instance", "run")
    wait: float = 10.0
    interval: float = 60.0
    repeat: float = 4 * 3600.0
    send_resolved: bool = True

    def takes(self, notice: Notice) -> bool:
        return not self.severities or not notice.severity or notice.severity in self.severities


@dataclass(slots=True)
class Ledger:
    """What one receiver knows of one group."""

    told: dict[str, float] = field(default_factory=dict)
    """fingerprint -> startsAt of each alert that it believes to fire"""
    last: float | None = None
    """when it was last told anything"""
    waiting: float | None = None
    """since when there is something new to say"""

    def as_dict(self) -> dict[str, Any]:
        return {"told": self.told, "last": self.last, "waiting": self.waiting}


Ledgers = dict[str, Ledger]
"""By receiver and group: see `key`."""


def key(receiver: str, group: Mapping[str, str]) -> str:
    return orjson.dumps([receiver, dict(group)], option=orjson.OPT_SORT_KEYS).decode()


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that stands at one moment."""

    notices: Sequence[Notice]
    muted: Mapping[str, str]
    """fingerprint of a symptom -> name of the alert that explains it"""
    external_url: str = ""


def plan(route: Route, scene: Scene, ledgers: Ledgers, now: float) -> list[Notification]:
    """What the receiver must be told now. Writes it down in `ledgers` as told."""
    groups: dict[str, tuple[dict[str, str], list[Notice]]] = {}
    for notice in scene.notices:
        if route.takes(notice):
            labels = {name: notice.labels[name] for name in route.group_by if notice.labels.get(name)}
            groups.setdefault(key(route.receiver, labels), (labels, []))[1].append(notice)
    found = []
    for name, (labels, members) in groups.items():
        ledger = ledgers.setdefault(name, Ledger())
        said = _said(route, members, scene, ledger, now)
        if said:
            explained = [scene.muted[n.fingerprint] for n in members if n.firing and n.fingerprint in scene.muted]
            found.append(
                Notification(
                    route.receiver,
                    labels,
                    tuple(said),
                    scene.external_url,
                    tuple(dict.fromkeys(explained)),
                    len(explained),
                )
            )
        _forget(ledger, members)
    _clean(ledgers, route.receiver, groups)
    return found


def _said(route: Route, members: Sequence[Notice], scene: Scene, ledger: Ledger, now: float) -> list[Notice]:
    firing = [n for n in members if n.firing and n.fingerprint not in scene.muted]
    fresh = [n for n in firing if ledger.told.get(n.fingerprint) != n.starts_at]
    ended = [n for n in members if not n.firing and n.fingerprint in ledger.told]
    if not fresh and not (ended and route.send_resolved):
        for notice in ended:
            del ledger.told[notice.fingerprint]
        ledger.waiting = None
        if not firing or ledger.last is None or now - ledger.last < route.repeat:
            return []
        ledger.last = now
        return firing
    if ledger.waiting is None:
        ledger.waiting = now
    if ledger.last is None or not ledger.told:
        if now - ledger.waiting < route.wait:
            return []
    elif now - ledger.last < route.interval:
        return []
    ledger.waiting, ledger.last = None, now
    for notice in ended:
        del ledger.told[notice.fingerprint]
    ledger.told.update({n.fingerprint: n.starts_at for n in firing})
    return firing + (ended if route.send_resolved else [])


def _forget(ledger: Ledger, members: Iterable[Notice]) -> None:
    """Alerts that are no longer known at all (their retention passed while they were muted)."""
    known = {n.fingerprint for n in members}
    for gone in [f for f in ledger.told if f not in known]:
        del ledger.told[gone]


def _clean(ledgers: Ledgers, receiver: str, groups: Mapping[str, object]) -> None:
    for name in [n for n in ledgers if n not in groups and orjson.loads(n)[0] == receiver]:
        del ledgers[name]
