"""PagerDuty Events API v2: one incident an alert, opened and resolved by the alert's fingerprint.

Sending the same event again changes nothing on the other side (dedup_key), so repeats are harmless.
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from posttrain_watchdog.alerting import wording
from posttrain_watchdog.alerting.notification import Notice, Notification
from posttrain_watchdog.alerting.transport import HttpReceiver, Receiver, ReceiverError, ReceiverSettings, Request
from posttrain_watchdog.alerting.views import rfc3339

OPTIONS: frozenset[str] = frozenset()
SECRETS = ("routing_key",)
URL_IS_SECRET = False
ENDPOINT = "https://events.pagerduty.com/v2/enqueue"
_SEVERITIES = {"critical": "critical", "warning": "warning", "info": "info", "error": "error"}
_MOST_SUMMARY = 1024


def _event(each: Notice, n: Notification, key: str) -> dict[str, object]:
    event: dict[str, object] = {
        "routing_key": key,
        "event_action": "trigger" if each.firing else "resolve",
        "dedup_key": f"posttrain-watchdog-{each.fingerprint}",
    }
    if each.firing:
        summary = wording.plain(f"{each.name}: {each.annotations.get('summary') or each.name}")
        event["client"] = "posttrain-watchdog"
        event["client_url"] = n.external_url
        event["payload"] = {
            "summary": summary[:_MOST_SUMMARY],
            "source": wording.plain(each.labels.get("instance") or each.labels.get("run") or "posttrain-watchdog"),
            "severity": _SEVERITIES.get(each.severity, "error"),
            "timestamp": rfc3339(each.starts_at),
            "class": each.name,
            "custom_details": {"labels": dict(each.labels), "annotations": dict(each.annotations)},
        }
    return event


def compose(n: Notification, settings: ReceiverSettings, now: float) -> list[Request]:
    key = settings.secrets["routing_key"]
    return [Request(settings.url, orjson.dumps(_event(each, n, key))) for each in n.notices]


def build(settings: ReceiverSettings) -> Receiver:
    if "routing_key" not in settings.secrets:
        raise ReceiverError(f"receiver {settings.name!r}: expected routing_key_file or routing_key_env")
    return HttpReceiver(replace(settings, url=settings.url or ENDPOINT), compose)
