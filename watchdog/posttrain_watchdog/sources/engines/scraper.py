"""One engine's /metrics, asked again and again; what needs two answers is remembered here.

Promises: an answer or a reason, never an exception. Never retries: the next tick does.
"""

from __future__ import annotations

from posttrain_watchdog.model import Row
from posttrain_watchdog.sources.engines import scrape
from posttrain_watchdog.sources.engines.metrics import MetricsReader


class Scraper:
    """The endpoint of one engine of one run. `url` is how it is named, without credentials."""

    def __init__(self, run: str, url: str, name: str = "", timeout: float = 5.0, interval: float = 15.0) -> None:
        """Seconds an answer may take, and between two. Raises ValueError for what is no address."""
        self.run = run
        self.interval = interval
        self._target = scrape.metrics_url(url)
        self.url = scrape.without_credentials(self._target)
        self.said = ""
        """the last reason that was told"""
        self._timeout = timeout
        self._reader = MetricsReader({"source": name} if name else {})
        self._client = scrape.open_client()

    async def scrape(self, now: float) -> tuple[Row | None, str]:
        """(the row, or None and why there is none)"""
        answer = await scrape.fetch(self._client, self._target, self._timeout)
        if answer.text is None:
            return None, answer.reason
        row = self._reader.read(answer.text, now)
        return (row, "") if row.values else (None, "no engine's metrics are in the answer")

    async def close(self) -> None:
        await self._client.aclose()
