"""Any HTTP endpoint, told in Alertmanager's webhook JSON (version "4", notify/webhook/webhook.go, 0.25)."""

from __future__ import annotations

from typing import Any

import orjson

from posttrain_watchdog.alerting.notification import Notification
from posttrain_watchdog.alerting.transport import HttpReceiver, Receiver, ReceiverSettings, Request
from posttrain_watchdog.alerting.views import ZERO_TIME, rfc3339

OPTIONS = frozenset({"max_alerts"})
SECRETS = ("bearer_token",)
URL_IS_SECRET = False


def message(n: Notification, most: int = 0) -> dict[str, Any]:
    """The body as Alertmanager writes it; `most` > 0 cuts the list of alerts."""
    kept = n.notices[:most] if most > 0 else n.notices
    group = ", ".join(f'{k}="{v}"' for k, v in sorted(n.group.items()))
    return {
        "version": "4",
        "groupKey": f"{{}}:{{{group}}}",
        "truncatedAlerts": len(n.notices) - len(kept),
        "status": n.status,
        "receiver": n.receiver,
        "groupLabels": dict(n.group),
        "commonLabels": n.common_labels,
        "commonAnnotations": n.common_annotations,
        "externalURL": n.external_url,
        "alerts": [
            {
                "status": "firing" if each.firing else "resolved",
                "labels": dict(each.labels),
                "annotations": dict(each.annotations),
                "startsAt": rfc3339(each.starts_at),
                "endsAt": ZERO_TIME if each.ends_at is None else rfc3339(each.ends_at),
                "generatorURL": n.external_url,
                "fingerprint": each.fingerprint,
            }
            for each in kept
        ],
    }


def compose(n: Notification, settings: ReceiverSettings, now: float) -> list[Request]:
    headers = {"Content-Type": "application/json"}
    if "bearer_token" in settings.secrets:
        headers["Authorization"] = f"Bearer {settings.secrets['bearer_token']}"
    body = orjson.dumps(message(n, int(settings.options.get("max_alerts", 0))))
    return [Request(settings.url, body, headers)]


def build(settings: ReceiverSettings) -> Receiver:
    return HttpReceiver(settings, compose)
