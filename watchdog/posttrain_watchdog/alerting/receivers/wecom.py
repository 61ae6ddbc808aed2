"""WeCom (WeChat Work) group robot: a markdown message of at most 4096 bytes.

Errors come with HTTP 200 and `errcode`; 45009 is the rate limit (20 messages a minute), -1 a busy system.
"""

from __future__ import annotations

import orjson

from posttrain_watchdog.alerting import wording
from posttrain_watchdog.alerting.notification import Notification
from posttrain_watchdog.alerting.transport import (
    HttpReceiver,
    Outcome,
    Receiver,
    ReceiverSettings,
    Request,
    errcode_complaint,
)

OPTIONS: frozenset[str] = frozenset()
SECRETS: tuple[str, ...] = ()
URL_IS_SECRET = True
_MOST_BYTES = 4000
_LIMITED = (-1, 45009)


def escape(text: str) -> str:
    """Without < and > there is no <@everybody> and no colour."""
    return text.replace("<", "＜").replace(">", "＞").replace("`", "'").replace("[", "［").replace("]", "］")


def compose(n: Notification, settings: ReceiverSettings, now: float) -> list[Request]:
    head = f"### {escape(wording.headline(n, settings.language))}\n"
    content = head + wording.text(n, settings.language, escape)
    body = {"msgtype": "markdown", "markdown": {"content": wording.cut(content, _MOST_BYTES)}}
    return [Request(settings.url, orjson.dumps(body))]


def complaint(answer: bytes) -> Outcome | None:
    return errcode_complaint(answer, _LIMITED)


def build(settings: ReceiverSettings) -> Receiver:
    return HttpReceiver(settings, compose, complaint)
