"""The HTTP side: what a scraper, Grafana, a person and a hostile page get."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from posttrain_watchdog.model import Diagnosis, Metric
from posttrain_watchdog.web.app import create_app
from posttrain_watchdog.web.page import sparkline
from posttrain_watchdog.web.view import QueryError, RunView, SourceView

HOSTILE = '"><script>alert(1)</script>'


class Scripted:
    """A view with one run whose every text is hostile."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.reloads = 0

    def now(self) -> float:
        return 1_800_000_000.0

    def started(self) -> float:
        return 1_800_000_000.0 - 7200

    def version(self) -> str:
        return "0.0"

    def ready(self) -> bool:
        return True

    def snapshots(self) -> Iterable[tuple[Sequence[Metric], Sequence[float]]]:
        named = [
            Metric("posttrain_trainer_loss", {"run": HOSTILE}),
            Metric("posttrain_events_total", {"kind": "xid", "run": "a"}),
            Metric("posttrain_importance_ratio_mean", {"run": "a"}),
        ]
        return [(named, [1.5, 2.0, math.nan])]

    def alerts(self) -> list[dict[str, Any]]:
        labels = {"alertname": HOSTILE, "severity": "critical", "run": HOSTILE}
        notes = {"summary": HOSTILE, "description": HOSTILE + "2"}
        return [{"labels": labels, "annotations": notes, "state": "firing", "activeAt": "", "value": "1"}]

    def rules(self) -> dict[str, Any]:
        return {"groups": []}

    def instant(self, expr: str, time: float) -> dict[str, Any]:
        if "(" in expr:
            raise QueryError("1:1: unexpected character")
        return {"resultType": "vector", "result": [{"metric": {"__name__": expr}, "value": [time, "1"]}]}

    def range(self, expr: str, start: float, end: float, step: float) -> dict[str, Any]:
        return {"resultType": "matrix", "result": [{"metric": {}, "values": [[start, "1"], [end, "2"]]}]}

    def label_names(self) -> list[str]:
        return ["run"]

    def label_values(self, name: str) -> list[str]:
        return [name]

    def runs(self) -> Sequence[RunView]:
        said = Diagnosis("stale_weights", 0.9, HOSTILE, {HOSTILE: HOSTILE, "k3": 0.1}, (HOSTILE,), 3, 9, 100)
        source = SourceView(HOSTILE, HOSTILE, False, HOSTILE)
        return [RunView(HOSTILE, 12, False, [said], [source], {"posttrain_kl_k3": 0.1})]

    def reload(self) -> list[str]:
        self.reloads += 1
        return self.faults


class Client:
    """Asks the application as a client on this machine would."""

    def __init__(self, view: Scripted) -> None:
        self._app = create_app(view)

    def _ask(self, method: str, url: str, **more: Any) -> httpx.Response:
        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9877") as client:
                return await client.request(method, url, **more)

        return asyncio.run(once())

    def get(self, url: str, **more: Any) -> httpx.Response:
        return self._ask("GET", url, **more)

    def post(self, url: str, **more: Any) -> httpx.Response:
        return self._ask("POST", url, **more)


@pytest.fixture
def view() -> Scripted:
    return Scripted()


@pytest.fixture
def client(view: Scripted) -> Client:
    return Client(view)


def test_a_scrape_can_be_read_by_prometheus_own_parser(client: Client) -> None:
    families = {f.name: f for f in text_string_to_metric_families(client.get("/metrics").text)}
    assert families["posttrain_trainer_loss"].samples[0].labels == {"run": HOSTILE}
    assert families["posttrain_events"].type == "counter"
    assert math.isnan(families["posttrain_importance_ratio_mean"].samples[0].value)


def test_open_metrics_is_given_to_those_who_ask(client: Client) -> None:
    answer = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert "openmetrics" in answer.headers["content-type"]
    assert answer.text.endswith("# EOF\n")


def test_nothing_hostile_reaches_the_page_unescaped(client: Client) -> None:
    answer = client.get("/")
    assert "<script" not in answer.text
    assert answer.text.count("&lt;script&gt;") >= 8
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_another_sites_name_for_this_address_is_refused(client: Client) -> None:
    assert client.get("/metrics", headers={"Host": "evil.example"}).status_code == 400


def test_a_reload_is_taken_from_scripts_and_this_page_but_not_from_another_site(client: Client, view: Scripted) -> None:
    assert client.post("/-/reload").status_code == 200
    assert client.post("/-/reload", headers={"Origin": "http://127.0.0.1:9877"}).status_code == 200
    assert client.post("/-/reload", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("/-/reload").status_code == 405
    assert view.reloads == 2


def test_a_reload_that_fails_says_why(client: Client, view: Scripted) -> None:
    view.faults = ["rules.yml:3: bad"]
    answer = client.post("/-/reload")
    assert answer.status_code == 500
    assert "rules.yml:3: bad" in answer.text


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/api/v1/query?query=sum(", "unexpected character"),
        ("/api/v1/query?query=up&time=yesterday", 'invalid parameter "time"'),
        ("/api/v1/query_range?query=up&start=1&end=2", 'invalid parameter "step"'),
        ("/api/v1/query_range?query=up&start=2&end=1&step=1", "end timestamp"),
        ("/api/v1/query_range?query=up&start=0&end=1e9&step=1", "maximum resolution"),
        ("/api/v1/query_range?query=up&start=0&end=1&step=0", "zero or negative"),
        ("/api/v1/query?query=up&time=NaN", 'invalid parameter "time"'),
        ("/api/v1/series", "no match[]"),
    ],
)
def test_a_bad_parameter_is_named(client: Client, url: str, expected: str) -> None:
    answer = client.get(url)
    assert answer.status_code == 400
    assert answer.json()["errorType"] == "bad_data"
    assert expected in answer.json()["error"]


def test_grafanas_questions_have_answers(client: Client) -> None:
    assert client.post("/api/v1/query", data={"query": "up"}).json()["data"]["resultType"] == "vector"
    moment = "2026-12-01T00:00:00Z"
    assert client.get("/api/v1/query", params={"query": "up", "time": moment}).status_code == 200
    assert client.get("/api/v1/label/run/values").json()["data"] == ["run"]
    assert client.get("/api/v1/status/buildinfo").json()["data"]["version"] == "0.0"
    assert client.get("/api/v1/diagnoses").json()["data"][0]["cause"] == "stale_weights"
    for path in ("/healthz", "/-/healthy", "/readyz", "/-/ready", "/style.css", "/api/v1/rules", "/api/v1/metadata"):
        assert client.get(path).status_code == 200, path


def test_a_sparkline_leaves_out_what_is_not_finite() -> None:
    assert sparkline([1.0, math.nan]) == ""
    assert "NaN" not in sparkline([1.0, math.nan, math.inf, 3.0])
