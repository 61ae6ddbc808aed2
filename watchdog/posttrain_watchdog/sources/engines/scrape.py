"""Fetches an engine's /metrics.

Promises: one request with a deadline, no redirects, no environment proxies, a bounded body; what goes wrong is a
`Scrape` with a reason, never an exception, so that one dead engine stops nothing. Never retries: the next tick does.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    import httpx

MAX_BYTES = 16 * 2**20
DEFAULT_PORTS = (8000, 30000)
"""vLLM's and SGLang's own default ports."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one request gave: `text`, or None and the `reason`."""

    url: str
    text: str | None
    reason: str = ""


def metrics_url(address: str) -> str:
    """The /metrics URL of a port, a host:port, a base URL or a metrics URL; without a host: this machine."""
    if address.isdigit():
        address = f"127.0.0.1:{address}"
    parts = urlsplit(address if "://" in address else f"http://{address}")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"expected a port, HOST:PORT or an http URL, got {address!r}")
    path = parts.path.rstrip("/")
    if not path.endswith("/metrics"):
        path = path.removesuffix("/v1") + "/metrics"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def without_credentials(url: str) -> str:
    """The URL as it may be shown: in logs, labels and on the page."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))


async def fetch(client: httpx.AsyncClient, url: str, timeout: float = 5.0) -> Scrape:
    """One scrape of `url` with a client from `open_client`; `timeout` seconds for all of it, however it drips."""
    import httpx

    try:
        return await asyncio.wait_for(_fetch(client, url, timeout), timeout)
    except (httpx.TimeoutException, asyncio.TimeoutError):
        return Scrape(url, None, f"no answer within {timeout:g} s")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Scrape(url, None, f"{type(error).__name__}: {error}")


async def _fetch(client: httpx.AsyncClient, url: str, timeout: float) -> Scrape:
    async with client.stream("GET", url, timeout=timeout) as answer:
        if answer.status_code != 200:
            return Scrape(url, None, f"HTTP {answer.status_code}")
        body = bytearray()
        async for chunk in answer.aiter_bytes():
            body += chunk
            if len(body) > MAX_BYTES:
                return Scrape(url, None, f"answer larger than {MAX_BYTES} bytes")
    return Scrape(url, body.decode("utf-8", "replace"))


def open_client() -> httpx.AsyncClient:
    """A client for `fetch`: keeps connections, follows no redirects, ignores proxies of the environment."""
    import httpx

    accept = {"Accept": "text/plain; version=0.0.4"}
    return httpx.AsyncClient(follow_redirects=False, trust_env=False, headers=accept)
