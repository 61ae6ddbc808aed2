"""The process is killed (SIGKILL) at the worst moments: nothing is lost, nothing is half written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from posttrain_watchdog.alerting.delivery import Delivery
from posttrain_watchdog.alerting.grouping import Route
from posttrain_watchdog.alerting.transport import Outcome
from posttrain_watchdog.model import Alert
from posttrain_watchdog.state import State

folder, moment = Path(sys.argv[1]), sys.argv[2]

def die(at):
    if at == moment:
        os.kill(os.getpid(), signal.SIGKILL)

class Pager:
    name = "pager"
    async def send(self, notification, now):
        die("before sending")
        with open(folder / "told", "a") as told:
            told.write(" ".join(n.name for n in notification.notices) + "\\n")
        die("after sending")
        return Outcome(True, False)
    async def close(self): ...

state = State(folder / "state")
delivery = Delivery(state, receivers=[(Route("pager", wait=0.0), Pager())])
alert = Alert("A", {"alertname": "A"}, {}, "firing", 0.0, 1.0, fired_at=0.0)
with state.transaction():
    delivery.take([alert], 10.0)
    die("before the commit")
asyncio.run(delivery.flush(10.0))
print("lived", delivery.outbox_length)
"""


@pytest.mark.parametrize(
    ("moment", "told"),
    [("before the commit", ["A"]), ("before sending", ["A"]), ("after sending", ["A", "A"]), ("never", ["A"])],
)
def test_an_alert_is_told_at_least_once(tmp_path: Path, moment: str, told: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "watchdog")}

    def live(until: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CHILD, str(tmp_path), until]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    first = live(moment)
    assert first.returncode == (0 if moment == "never" else -signal.SIGKILL), first.stderr
    again = live("never")
    assert again.stdout == "lived 0\n", again.stderr
    assert (tmp_path / "told").read_text().split() == told
