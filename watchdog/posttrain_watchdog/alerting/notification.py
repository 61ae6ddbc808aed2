"""What a receiver is told: alerts of one group as they stand, written so that they can be kept and sent later.

Promises: plain data, pure; a notification reads back from its JSON as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from posttrain_watchdog.model import Alert

_OFFSET, _PRIME, _SEPARATOR = 14695981039346656037, 1099511628211, 255


def fingerprint(labels: Mapping[str, str]) -> str:
    """Alertmanager's fingerprint of a label set: FNV-1a over the sorted pairs (prometheus/common signature.go)."""
    value = _OFFSET
    for name in sorted(labels):
        for part in (name, labels[name]):
            for byte in (*part.encode("utf-8", "replace"), _SEPARATOR):
                value = ((value ^ byte) * _PRIME) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


@dataclass(frozen=True, slots=True)
class Notice:
    """One alert at the moment of telling. Times in seconds since the epoch."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: float
    ends_at: float | None = None
    """when it was resolved; None while it fires"""

    @property
    def firing(self) -> bool:
        return self.ends_at is None

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.labels)

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "")

    @property
    def severity(self) -> str:
        return self.labels.get("severity", "")


def notice(alert: Alert, external_labels: Mapping[str, str]) -> Notice | None:
    """The alert as others are told of it; None while it is pending, or if it never fired."""
    if alert.state == "pending" or (alert.state == "inactive" and alert.resolved_at is None):
        return None
    return Notice(
        labels={**external_labels, **alert.labels},
        annotations={k: v for k, v in alert.annotations.items() if v and not k.startswith("watchdog_")},
        starts_at=alert.active_at if alert.fired_at is None else alert.fired_at,
        ends_at=alert.resolved_at if alert.state == "inactive" else None,
    )


def _common(mappings: Iterable[Mapping[str, str]]) -> dict[str, str]:
    found: dict[str, str] | None = None
    for each in mappings:
        items = dict(each)
        found = items if found is None else {k: v for k, v in found.items() if items.get(k) == v}
    return found or {}


@dataclass(frozen=True, slots=True)
class Notification:
    """What one receiver is told of one group."""

    receiver: str
    group: Mapping[str, str]
    notices: tuple[Notice, ...]
    external_url: str = ""
    root_causes: tuple[str, ...] = field(default=())
    """names of the alerts whose symptoms are kept silent"""
    silent: int = 0
    """how many alerts these explain"""

    @property
    def firing(self) -> tuple[Notice, ...]:
        return tuple(n for n in self.notices if n.firing)

    @property
    def resolved(self) -> tuple[Notice, ...]:
        return tuple(n for n in self.notices if not n.firing)

    @property
    def status(self) -> str:
        return "firing" if self.firing else "resolved"

    @property
    def severity(self) -> str:
        """The worst of those that fire (of all, where none does)."""
        found = {n.severity for n in self.firing or self.notices}
        return next((s for s in ("critical", "warning", "info") if s in found), "warning")

    @property
    def common_labels(self) -> dict[str, str]:
        return _common(n.labels for n in self.notices)

    @property
    def common_annotations(self) -> dict[str, str]:
        return _common(n.annotations for n in self.notices)

    def after(self, earlier: Notification) -> Notification:
        """This one, with what an earlier one that was never delivered says and this does not: resolved alerts."""
        known = {n.fingerprint for n in self.notices}
        missed = tuple(n for n in earlier.resolved if n.fingerprint not in known)
        return replace(self, notices=self.notices + missed) if missed else self

    def as_dict(self) -> dict[str, Any]:
        return {
            "receiver": self.receiver,
            "group": dict(self.group),
            "notices": [
                {"labels": n.labels, "annotations": n.annotations, "starts_at": n.starts_at, "ends_at": n.ends_at}
                for n in self.notices
            ],
            "external_url": self.external_url,
            "root_causes": list(self.root_causes),
            "silent": self.silent,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Notification:
        return cls(
            receiver=data["receiver"],
            group=data["group"],
            notices=tuple(Notice(**each) for each in data["notices"]),
            external_url=data["external_url"],
            root_causes=tuple(data["root_causes"]),
            silent=data["silent"],
        )
