"""Alertmanager's v2 API: which alerts to send now, and how they are written.

Promises: every Alertmanager gets every alert; a firing alert is sent again within `resend_delay`, so that one that
was lost arrives late rather than never; a resolved one is repeated for 15 minutes. A sender never loops: it says
whether a retry makes sense. As prometheus/rules/manager.go (needsSending, endsAt), v2.42. Time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import httpx
import orjson

from posttrain_watchdog.alerting.transport import Outcome, Request, judged, post
from posttrain_watchdog.alerting.views import rfc3339
from posttrain_watchdog.model import Alert, LabelPairs

_GRACE_INTERVALS = 4
"""endsAt lies so many resend delays ahead: an alert whose sender dies ends by itself."""
_BATCH = 64
"""alerts in one request (notifier.go)"""
_MOST_REMEMBERED = 10_000
_REMEMBERED = 3600.0


def payload(
    alert: Alert, now: float, resend_delay: float, external_labels: Mapping[str, str], generator_url: str
) -> dict[str, Any]:
    """One alert as POST /api/v2/alerts takes it."""
    ends = alert.resolved_at if alert.resolved_at is not None else now + _GRACE_INTERVALS * resend_delay
    return {
        "labels": {**external_labels, **alert.labels},
        "annotations": {k: v for k, v in alert.annotations.items() if v and not k.startswith("watchdog_")},
        "startsAt": rfc3339(alert.fired_at if alert.fired_at is not None else alert.active_at),
        "endsAt": rfc3339(ends),
        "generatorURL": generator_url,
    }


class Alertmanager:
    """One Alertmanager and what it has been told."""

    def __init__(
        self,
        url: str,
        *,
        resend_delay: float = 60.0,
        timeout: float = 10.0,
        external_labels: Mapping[str, str] | None = None,
        generator_url: str = "",
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        if not self.url.endswith("/api/v2/alerts"):
            self.url += "/api/v2/alerts"
        self._resend_delay = resend_delay
        self._external_labels = dict(external_labels or {})
        self._generator_url = generator_url
        self._sent: dict[LabelPairs, float] = {}
        self._timeout = timeout
        self._client = httpx.AsyncClient(headers=dict(headers or {}), auth=auth, transport=transport)

    def due(self, alerts: Iterable[Alert], now: float) -> list[Alert]:
        """The alerts that this Alertmanager must be told of now."""
        return [a for a in alerts if a.state != "pending" and self._needs_sending(a, now)]

    def _needs_sending(self, alert: Alert, now: float) -> bool:
        last = self._sent.get(tuple(sorted(alert.labels.items())))
        if last is None:
            return alert.state == "firing" or alert.resolved_at is not None
        if alert.resolved_at is not None and alert.resolved_at > last:
            return True
        return last + self._resend_delay <= now

    async def send(self, alerts: Iterable[Alert], now: float) -> Outcome:
        """Tells what is due, 64 alerts a request. Never raises for what the other side does."""
        due = self.due(alerts, now)
        told = 0
        for start in range(0, len(due), _BATCH):
            batch = due[start : start + _BATCH]
            outcome = await self._post(batch, now)
            if not outcome.ok:
                return outcome
            told += len(batch)
            for alert in batch:
                self._sent[tuple(sorted(alert.labels.items()))] = now
        self._forget(now)
        return Outcome(True, False, f"{told} alerts" if told else "")

    async def _post(self, batch: list[Alert], now: float) -> Outcome:
        body = orjson.dumps(
            [payload(a, now, self._resend_delay, self._external_labels, self._generator_url) for a in batch]
        )
        try:
            answer = await post(self._client, Request(self.url, body), self._timeout)
        except httpx.HTTPError as error:
            return Outcome(False, True, f"{self.url}: {type(error).__name__}: {error}")
        refused = judged(answer)
        return Outcome(True, False) if refused is None else replace(refused, detail=f"{self.url}: {refused.detail}")

    def _forget(self, now: float) -> None:
        """Alerts that were last told of long ago are gone on the other side too."""
        if len(self._sent) > _MOST_REMEMBERED:
            self._sent = {k: t for k, t in self._sent.items() if now - t < _REMEMBERED}

    async def close(self) -> None:
        await self._client.aclose()
