"""Feishu (Lark) custom robot: an interactive card, signed where the robot wants it.

Signature: base64(HMAC-SHA256(key = "{timestamp}\\n{secret}", message = "")), timestamp in seconds. Errors come with
HTTP 200 and a code in the body; 9499, 11232 and 11233 are rate limits.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

import orjson

from posttrain_watchdog.alerting import wording
from posttrain_watchdog.alerting.notification import Notification
from posttrain_watchdog.alerting.transport import HttpReceiver, Outcome, Receiver, ReceiverSettings, Request

OPTIONS: frozenset[str] = frozenset()
SECRETS = ("secret",)
URL_IS_SECRET = True
_TEMPLATES = {"critical": "red", "warning": "orange", "info": "blue"}
_MOST_BYTES = 18_000
_LIMITED = (9499, 11232, 11233)


def escape(text: str) -> str:
    """Signs of lark_md: without < and > nothing can mention anybody."""
    text = text.replace("&", "&#38;").replace("<", "&#60;").replace(">", "&#62;")
    for sign, entity in (("*", "&#42;"), ("~", "&sim;"), ("[", "&#91;"), ("]", "&#93;"), ("`", "&#96;")):
        text = text.replace(sign, entity)
    return text


def signature(secret: str, timestamp: int) -> str:
    digest = hmac.new(f"{timestamp}\n{secret}".encode(), b"", hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def compose(n: Notification, settings: ReceiverSettings, now: float) -> list[Request]:
    content = wording.text(n, settings.language, escape, _MOST_BYTES)
    body: dict[str, object] = {
        "msg_type": "interactive",
        "card": {
            "config": {"wide_screen_mode": True},
            "header": {
                "title": {"tag": "plain_text", "content": wording.headline(n, settings.language)},
                "template": _TEMPLATES.get(n.severity, "orange") if n.firing else "green",
            },
            "elements": [{"tag": "div", "text": {"tag": "lark_md", "content": content}}],
        },
    }
    if "secret" in settings.secrets:
        body["timestamp"] = str(int(now))
        body["sign"] = signature(settings.secrets["secret"], int(now))
    return [Request(settings.url, orjson.dumps(body))]


def complaint(answer: bytes) -> Outcome | None:
    try:
        data = orjson.loads(answer)
        code = data.get("code", data.get("StatusCode", 0))
    except (orjson.JSONDecodeError, AttributeError):
        return Outcome(False, True, "the answer is not JSON")
    if code == 0:
        return None
    return Outcome(False, code in _LIMITED, f"code {code}: {str(data.get('msg', ''))[:200]}")


def build(settings: ReceiverSettings) -> Receiver:
    return HttpReceiver(settings, compose, complaint)
