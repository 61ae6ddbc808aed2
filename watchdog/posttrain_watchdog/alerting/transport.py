"""How receivers are reached: one attempt by HTTP, and what became of it.

Promises: a sender never loops and never raises for what the other side does; it says whether a retry makes sense
(network errors, 429 and 5xx do, other refusals do not). Redirects are not followed. Nothing that may hold a secret
(the URL, the request) gets into the text of an outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx
import orjson

from posttrain_watchdog.alerting.notification import Notification

_MOST_ANSWER = 200
_MOST_READ = 64 << 10
"""bytes of an answer that are read"""
RETRY_AFTER_MAX = 3600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one attempt."""

    ok: bool
    retry: bool
    detail: str = ""
    retry_after: float = 0.0
    """seconds that the other side asked for"""


class Receiver(Protocol):
    """Where notifications go."""

    name: str

    async def send(self, notification: Notification, now: float) -> Outcome: ...

    async def close(self) -> None: ...


class ReceiverError(ValueError):
    """A receiver that is configured wrongly; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """What a receiver is made of; secrets have been read already."""

    name: str
    url: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    language: str = "en"
    timeout: float = 10.0
    transport: httpx.AsyncBaseTransport | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One POST."""

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


Compose = Callable[[Notification, ReceiverSettings, float], Sequence[Request]]
Complaint = Callable[[bytes], Outcome | None]
"""What a body that came with HTTP 200 complains of; None where it says yes."""


def _contented(_: bytes) -> Outcome | None:
    return None


class HttpReceiver:
    """A receiver that takes POST requests."""

    def __init__(self, settings: ReceiverSettings, compose: Compose, complaint: Complaint = _contented) -> None:
        if not settings.url.startswith(("http://", "https://")):
            raise ReceiverError(f"receiver {settings.name!r}: expected a URL with http:// or https://")
        self.name = settings.name
        self._settings = settings
        self._compose = compose
        self._complaint = complaint
        self._client = httpx.AsyncClient(transport=settings.transport, follow_redirects=False, trust_env=True)

    async def send(self, notification: Notification, now: float) -> Outcome:
        for request in self._compose(notification, self._settings, now):
            outcome = await self._post(request)
            if not outcome.ok:
                return outcome
        return Outcome(True, False, f"{len(notification.notices)} alerts")

    async def _post(self, request: Request) -> Outcome:
        try:
            answer = await post(self._client, request, self._settings.timeout)
        except httpx.HTTPError as error:
            return Outcome(False, True, type(error).__name__)
        except (httpx.InvalidURL, ValueError):
            return Outcome(False, False, "the URL is not valid")
        return judged(answer) or self._complaint(answer.content) or Outcome(True, False)

    async def close(self) -> None:
        await self._client.aclose()


async def post(client: httpx.AsyncClient, request: Request, seconds: float) -> httpx.Response:
    """One POST, all of it within `seconds` however slowly the other side drips, and no more read than is judged.

    Raises httpx.HTTPError (TimeoutException too), httpx.InvalidURL, ValueError.
    """

    async def exchange() -> httpx.Response:
        headers = dict(request.headers)
        async with client.stream("POST", request.url, content=request.body, headers=headers, timeout=seconds) as answer:
            body = b""
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) >= _MOST_READ:
                    break
            after = {k: v for k, v in answer.headers.items() if k.lower() == "retry-after"}
            return httpx.Response(answer.status_code, headers=after, content=body[:_MOST_READ])

    try:
        return await asyncio.wait_for(exchange(), seconds)
    except asyncio.TimeoutError:
        raise httpx.ReadTimeout(f"no answer within {seconds:g} s") from None


def judged(answer: httpx.Response) -> Outcome | None:
    """None where the status says yes."""
    if answer.status_code < 300:
        return None
    retry = answer.status_code >= 500 or answer.status_code in (408, 429)
    text = answer.text[:_MOST_ANSWER].replace("\n", " ")
    after = answer.headers.get("Retry-After", "")
    wait = min(float(after), RETRY_AFTER_MAX) if after.isdigit() else 0.0
    return Outcome(False, retry, f"HTTP {answer.status_code}: {text}", wait)


def errcode_complaint(answer: bytes, limited: tuple[int, ...]) -> Outcome | None:
    """What a robot that answers HTTP 200 with `errcode` objects to; codes of `limited` are worth another try."""
    try:
        data = orjson.loads(answer)
        code = data.get("errcode", 0)
    except (orjson.JSONDecodeError, AttributeError):
        return Outcome(False, True, "the answer is not JSON")
    if code == 0:
        return None
    return Outcome(False, code in limited, f"errcode {code}: {str(data.get('errmsg', ''))[:200]}")
