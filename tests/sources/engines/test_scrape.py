"""Scrapes over a real socket of this machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from posttrain_watchdog.sources.engines import scrape


class _Engine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"vllm:num_requests_running 3\n"
        if self.path == "/big/metrics":
            body = b"x" * (scrape.MAX_BYTES + 1)
        self.send_response({"/sick/metrics": 503, "/moved/metrics": 302}.get(self.path, 200))
        self.send_header("Location", "/metrics")
        self.send_header("Content-Length", str(len(body) * (101 if self.path == "/drip/metrics" else 1)))
        self.end_headers()
        try:
            if self.path == "/drip/metrics":
                # each byte comes well within the limit, and all of them never
                for byte in body * 100:
                    self.wfile.write(bytes([byte]))
                    threading.Event().wait(0.02)
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Silent."""


@contextmanager
def engine() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Engine)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def scrape_all(*urls: str, timeout: float = 5.0) -> list[scrape.Scrape]:
    async def run() -> list[scrape.Scrape]:
        async with scrape.open_client() as client:
            return [await scrape.fetch(client, url, timeout) for url in urls]

    return asyncio.run(run())


def test_an_engine_is_read_and_a_sick_one_says_why() -> None:
    with engine() as host:
        paths = ("", "/sick", "/moved", "/big")
        well, sick, moved, big = scrape_all(*(scrape.metrics_url(host + p) for p in paths))
    assert well.text == "vllm:num_requests_running 3\n"
    assert sick.text is None and sick.reason == "HTTP 503"
    assert moved.text is None and moved.reason == "HTTP 302", "redirects are not followed"
    assert big.text is None and "larger" in big.reason


def test_an_engine_that_drips_is_given_up() -> None:
    with engine() as host:
        (answer,) = scrape_all(scrape.metrics_url(host + "/drip"), timeout=0.2)
    assert answer.text is None and answer.reason == "no answer within 0.2 s"


def test_credentials_are_not_shown() -> None:
    assert scrape.without_credentials("http://me:secret@host:8000/metrics?a=b") == "http://host:8000/metrics?a=b"


def test_nobody_listens() -> None:
    with engine() as host:
        gone = scrape.metrics_url(host)
    (answer,) = scrape_all(gone)
    assert answer.text is None and "ConnectError" in answer.reason


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("8000", "http://127.0.0.1:8000/metrics"),
        ("localhost:8000", "http://localhost:8000/metrics"),
        ("http://h:1/v1", "http://h:1/metrics"),
        ("https://h/metrics/", "https://h/metrics"),
    ],
)
def test_addresses(given: str, url: str) -> None:
    assert scrape.metrics_url(given) == url


def test_other_schemes_are_refused() -> None:
    with pytest.raises(ValueError, match="http URL"):
        scrape.metrics_url("file:///etc/passwd")
