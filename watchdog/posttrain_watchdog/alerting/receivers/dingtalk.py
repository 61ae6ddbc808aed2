"""DingTalk custom robot: a markdown message, signed where the robot wants it.

Signature: base64(HMAC-SHA256(key = secret, message = "{timestamp}\\n{secret}")) in the URL, timestamp in milliseconds.
Errors come with HTTP 200 and `errcode`; 130101 and 660026 are rate limits (20 messages a minute), -1 a busy system.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from urllib.parse import quote_plus

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

OPTIONS = frozenset({"at_mobiles", "keyword"})
SECRETS = ("secret",)
URL_IS_SECRET = True
_MOST_BYTES = 18_000
_LIMITED = (-1, 130101, 660026)


def escape(text: str) -> str:
    """Signs of its markdown, and the @ that would call people."""
    for sign in ("\\", "*", "_", "#", "`", "[", "]", "<", ">", "!"):
        text = text.replace(sign, "\\" + sign)
    return text.replace("@", "＠")


def signature(secret: str, milliseconds: int) -> str:
    digest = hmac.new(secret.encode(), f"{milliseconds}\n{secret}".encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def compose(n: Notification, settings: ReceiverSettings, now: float) -> list[Request]:
    title = wording.headline(n, settings.language)
    keyword = str(settings.options.get("keyword", ""))
    lines = wording.text(n, settings.language, escape, _MOST_BYTES)
    mobiles = [str(m) for m in settings.options.get("at_mobiles", [])]
    calls = " ".join(f"@{m}" for m in mobiles) if n.firing else ""
    # its markdown joins lines unless two spaces or an empty line part them
    content = f"### {escape(title)}\n\n" + lines.replace("\n", "  \n") + (f"\n\n{calls}" if calls else "")
    body = {
        "msgtype": "markdown",
        "markdown": {"title": f"{keyword} {title}".strip(), "text": content + (f"\n\n{keyword}" if keyword else "")},
        "at": {"atMobiles": mobiles if n.firing else [], "isAtAll": False},
    }
    url = settings.url
    if "secret" in settings.secrets:
        stamp = int(now * 1000)
        sign = quote_plus(signature(settings.secrets["secret"], stamp))
        url += f"{'&' if '?' in url else '?'}timestamp={stamp}&sign={sign}"
    return [Request(url, orjson.dumps(body))]


def complaint(answer: bytes) -> Outcome | None:
    return errcode_complaint(answer, _LIMITED)


def build(settings: ReceiverSettings) -> Receiver:
    return HttpReceiver(settings, compose, complaint)
