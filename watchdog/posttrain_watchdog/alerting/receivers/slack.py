"""Slack's incoming webhooks, and what speaks the same (Mattermost, Rocket.Chat, Discord's /slack)."""

from __future__ import annotations

import orjson

from posttrain_watchdog.alerting import wording
from posttrain_watchdog.alerting.notification import Notification
from posttrain_watchdog.alerting.transport import HttpReceiver, Outcome, Receiver, ReceiverSettings, Request

OPTIONS = frozenset({"channel"})
SECRETS: tuple[str, ...] = ()
URL_IS_SECRET = True
_COLOURS = {"critical": "#d32f2f", "warning": "#f9a825", "info": "#1976d2"}
_GOOD = "#388e3c"
_MOST_BYTES = 3000


def escape(text: str) -> str:
    """Slack's three signs; with them gone no label can name a channel or a user."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def compose(n: Notification, settings: ReceiverSettings, now: float) -> list[Request]:
    attachments = []
    for each in n.notices[: wording.MOST_ALERTS]:
        title, *lines = wording.paragraph(each, settings.language, escape)
        attachments.append(
            {
                "color": _COLOURS.get(each.severity, _COLOURS["warning"]) if each.firing else _GOOD,
                "title": wording.cut(title, 300),
                "text": wording.cut("\n".join(lines), _MOST_BYTES),
                "fallback": wording.cut(title, 300),
            }
        )
    attachments += [{"text": escape(line), "fallback": escape(line)} for line in wording.tail(n, settings.language)]
    body: dict[str, object] = {"text": escape(wording.headline(n, settings.language)), "attachments": attachments}
    if settings.options.get("channel"):
        body["channel"] = str(settings.options["channel"])
    return [Request(settings.url, orjson.dumps(body))]


def complaint(answer: bytes) -> Outcome | None:
    """Slack answers `ok`; others answer nothing, or JSON with `ok: false`."""
    if b'"ok":false' in answer.replace(b" ", b""):
        return Outcome(False, False, answer[:200].decode("utf-8", "replace"))
    return None


def build(settings: ReceiverSettings) -> Receiver:
    return HttpReceiver(settings, compose, complaint)
