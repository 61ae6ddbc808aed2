"""What we send, mute and write is what a real Alertmanager takes, mutes and writes."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from threading import Thread
from typing import Any

import httpx
import orjson
import pytest
import yaml
from conftest import ROOT

from posttrain_watchdog import clock
from posttrain_watchdog.alerting.alertmanager import Alertmanager
from posttrain_watchdog.alerting.delivery import Delivery
from posttrain_watchdog.alerting.inhibition import Inhibitor
from posttrain_watchdog.alerting.notification import Notification, fingerprint, notice
from posttrain_watchdog.alerting.receivers.webhook import message
from posttrain_watchdog.model import Alert
from posttrain_watchdog.state import State

pytestmark = pytest.mark.real
PATIENCE = 30.0
INHIBIT = ROOT / "rules" / "alertmanager" / "inhibit.yml"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Hook:
    """A webhook of our own, to see what Alertmanager writes."""

    def __init__(self) -> None:
        self.bodies: Queue[dict[str, Any]] = Queue()
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.put(orjson.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self._thread = Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, hook: Hook) -> Iterator[str]:
    binary = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if binary is None:
        pytest.skip("Alertmanager is not installed")
    folder = tmp_path_factory.mktemp("alertmanager")
    settings = {
        "route": {
            "receiver": "none",
            "routes": [
                {"receiver": "hook", "matchers": ["hook=yes"], "group_by": ["run"], "group_wait": "100ms"},
            ],
        },
        "receivers": [{"name": "none"}, {"name": "hook", "webhook_configs": [{"url": hook.url}]}],
        **yaml.safe_load(INHIBIT.read_text(encoding="utf-8")),
    }
    (folder / "am.yml").write_text(yaml.safe_dump(settings))
    port = free_port()
    process = subprocess.Popen(
        [binary, f"--config.file={folder / 'am.yml'}", f"--storage.path={folder / 'data'}",
         "--cluster.listen-address=", f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(f"http://127.0.0.1:{port}/-/ready", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    began = clock.elapsed()
    while clock.elapsed() - began < PATIENCE and process.poll() is None:
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.HTTPError:
            continue
    pytest.fail("Alertmanager did not start")


def alert(labels: dict[str, str], now: float, *, resolved: bool = False) -> Alert:
    return Alert(
        labels["alertname"],
        labels,
        {"summary": "s", "watchdog_on_missing": "keep", "empty": ""},
        "inactive" if resolved else "firing",
        now - 60,
        1.0,
        fired_at=now - 30,
        resolved_at=now if resolved else None,
    )


def tell(url: str, alerts: list[Alert], now: float) -> None:
    delivery = Delivery(State(), alertmanagers=[Alertmanager(url, external_labels={"cluster": "c"})])

    async def once() -> None:
        delivery.take(alerts, now)
        attempts = await delivery.flush(now)
        await delivery.close()
        assert [a.outcome.ok for a in attempts] == [True]

    asyncio.run(once())


def test_alerts_arrive_as_they_are_and_end_when_they_end(url: str) -> None:
    now = clock.now()
    odd = {"alertname": "Odd", "run": 'a"b\\c\n日本', "path": "/x,y=z"}
    many = [{"alertname": "Many", "n": str(i)} for i in range(200)]
    tell(url, [alert(labels, now) for labels in [odd, *many]], now)
    found = {a["fingerprint"]: a for a in httpx.get(f"{url}/api/v2/alerts").json()}
    assert {fingerprint({**labels, "cluster": "c"}) for labels in [odd, *many]} <= set(found)
    one = found[fingerprint({**odd, "cluster": "c"})]
    assert one["labels"] == {**odd, "cluster": "c"}
    assert one["annotations"] == {"summary": "s"}
    tell(url, [alert(odd, now, resolved=True)], now)
    assert fingerprint({**odd, "cluster": "c"}) not in {
        a["fingerprint"] for a in httpx.get(f"{url}/api/v2/alerts").json()
    }


def test_the_same_symptoms_are_silent_here_and_there(url: str) -> None:
    """Many draws of alerts of the rule pack, under the shipped file."""
    now = clock.now()
    names = sorted({m.value for r in Inhibitor.load(INHIBIT).rules for m in (*r.source, *r.target)})
    alertnames = sorted({n for value in names for n in value.split("|") if n[:1].isupper()})
    causes = sorted({n for value in names for n in value.split("|") if n[:1].islower()})
    draw = random.Random(7)
    labels = [
        {
            "alertname": draw.choice(alertnames),
            "draw": str(i),
            "run": draw.choice("ab"),
            **({"cause": draw.choice(causes)} if draw.random() < 0.3 else {}),
            "instance": f"case{i // 6}",
        }
        for i in range(240)
    ]
    tell(url, [alert(each, now) for each in labels], now)
    ours = Inhibitor.load(INHIBIT).muted(labels)
    assert 20 < len(ours) < 220, "the draw must have both kinds"
    found = {a["labels"].get("draw"): a for a in httpx.get(f"{url}/api/v2/alerts").json()}
    theirs = {i for i in range(len(labels)) if found[str(i)]["status"]["inhibitedBy"]}
    assert theirs == set(ours)


def test_our_webhook_message_is_theirs(url: str, hook: Hook) -> None:
    now = clock.now()
    alerts = [alert({"alertname": "Hooked", "hook": "yes", "run": "r", "n": str(i)}, now) for i in range(2)]
    tell(url, alerts, now)
    theirs = hook.bodies.get(timeout=PATIENCE)
    notices = tuple(n for a in alerts if (n := notice(a, {"cluster": "c"})) is not None)
    ours = message(Notification("hook", {"run": "r"}, notices, theirs["externalURL"]))
    assert list(ours) == list(theirs) or set(ours) == set(theirs)
    for key in ("version", "status", "receiver", "groupLabels", "commonLabels", "commonAnnotations", "truncatedAlerts"):
        assert ours[key] == theirs[key], key
    for mine, other in zip(
        sorted(ours["alerts"], key=lambda a: a["labels"]["n"]),
        sorted(theirs["alerts"], key=lambda a: a["labels"]["n"]),
        strict=True,
    ):
        assert set(mine) == set(other)
        for key in ("status", "labels", "annotations", "fingerprint", "endsAt"):
            assert mine[key] == other[key], key
        assert (
            mine["startsAt"] == other["startsAt"].replace("+00:00", "Z")
            or mine["startsAt"][:19] == other["startsAt"][:19]
        )
