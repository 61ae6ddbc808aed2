"""The daemon as a whole: growing files, real rules, a real Alertmanager, and what goes wrong around it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from posttrain_watchdog.config import Config
from posttrain_watchdog.daemon import Daemon
from posttrain_watchdog.performance import Performer
from posttrain_watchdog.pipeline import Tick
from posttrain_watchdog.shipped import demo_recording, rule_files

PATIENCE = 90.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def deadline() -> Callable[[], bool]:
    """True once patience has run out; a daemon that never gets there must not hang the tests."""
    end = time.monotonic() + PATIENCE
    return lambda: time.monotonic() > end


STRIDE = 4


class Steps:
    """Writes some steps of the recording before each tick, so that the daemon sees the files grow."""

    def __init__(self, folder: Path) -> None:
        self._performer = Performer(demo_recording() / "raw-logprobs", folder)
        self.over = False

    def __call__(self, _: Tick) -> None:
        self.over = [self._performer.perform() for _ in range(STRIDE)][-1] is None


def config(folder: Path, port: int, **more: object) -> Config:
    return Config.model_validate(
        {
            "runs": [{"name": "raw", "paths": [str(folder)]}],
            "web": {"listen": f"127.0.0.1:{port}"},
            "poll_interval": 0.05,
            "evaluation_interval": 0.05,
            "nvml": {"enabled": False},
            "host": {"kernel_log": False, "processes": False},
            **more,
        }
    )


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    binary = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if binary is None:
        pytest.skip("Alertmanager is not installed")
    port = free_port()
    settings = tmp_path / "alertmanager.yml"
    settings.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    process = subprocess.Popen(
        [binary, f"--config.file={settings}", f"--storage.path={tmp_path / 'am'}", "--cluster.listen-address=",
         f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    over = deadline()
    while True:
        try:
            if httpx.get(url + "/-/ready").status_code == 200:
                break
        except httpx.HTTPError:
            if over() or process.poll() is not None:
                process.kill()
                pytest.fail("Alertmanager did not start")
    yield url
    process.terminate()
    process.wait()


@pytest.mark.real
def test_an_alert_of_a_growing_run_reaches_a_real_alertmanager(tmp_path: Path, alertmanager: str) -> None:
    port = free_port()
    folder = tmp_path / "run"
    settings = config(
        folder, port, alerting={"alertmanagers": [{"url": alertmanager}], "external_labels": {"cluster": "c1"}}
    )
    daemon = Daemon(settings, rule_files())
    steps, over = Steps(folder), deadline()
    daemon.listeners.append(steps)
    seen: dict[str, object] = {}

    def until() -> bool:
        if over():
            return True
        if not steps.over:
            return False
        asyncio.get_running_loop().create_task(daemon.deliver())
        found = httpx.get(alertmanager + "/api/v2/alerts").json()
        named = [a for a in found if a["labels"]["alertname"] == "LogprobsModeWrong"]
        if named:
            seen["alert"] = named[0]
        return bool(named)

    asyncio.run(daemon.serve(until=until))
    alert = seen["alert"]
    assert isinstance(alert, dict)
    assert alert["labels"]["cause"] == "logprobs_mode_raw"
    assert alert["labels"]["run"] == "raw"
    assert alert["labels"]["cluster"] == "c1"
    assert "processed_logprobs" in alert["annotations"]["first_check"]
    assert not [name for name in alert["annotations"] if name.startswith("watchdog_")]


def test_everything_a_person_asks_of_a_running_daemon_is_answered(tmp_path: Path) -> None:
    port = free_port()
    folder = tmp_path / "run"
    daemon = Daemon(config(folder, port), rule_files())
    steps, over = Steps(folder), deadline()
    daemon.listeners.append(steps)
    answers: dict[str, httpx.Response] = {}
    base = f"http://127.0.0.1:{port}"

    async def ask() -> None:
        async with httpx.AsyncClient(base_url=base) as client:
            for path in (
                "/",
                "/metrics",
                "/healthz",
                "/readyz",
                "/api/v1/alerts",
                "/api/v1/rules",
                "/api/v1/diagnoses",
            ):
                answers[path] = await client.get(path)
            answers["query"] = await client.get("/api/v1/query", params={"query": "max(posttrain_run_step) by (run)"})
            answers["reload"] = await client.post("/-/reload")

    asking: list[asyncio.Task[None]] = []

    def until() -> bool:
        if steps.over and not asking:
            asking.append(asyncio.get_running_loop().create_task(ask()))
        return over() or bool(asking and asking[0].done())

    asyncio.run(daemon.serve(until=until))
    assert {k: a.status_code for k, a in answers.items()} == dict.fromkeys(answers, 200)
    assert "logprobs_mode_raw" in answers["/"].text
    assert 'posttrain_diagnosis_confidence{cause="logprobs_mode_raw",run="raw"}' in answers["/metrics"].text
    assert answers["query"].json()["data"]["result"][0]["metric"] == {"run": "raw"}
    firing = {a["labels"]["alertname"] for a in answers["/api/v1/alerts"].json()["data"]["alerts"]}
    assert "LogprobsModeWrong" in firing


def test_a_rule_file_broken_on_reload_leaves_the_last_good_rules_in_force(tmp_path: Path) -> None:
    rules = tmp_path / "r.yml"
    rules.write_text("groups: [{name: g, rules: [{alert: A, expr: vector(1)}]}]\n")
    daemon = Daemon(config(tmp_path / "run", free_port()), [rules])
    rules.write_text("groups: [{name: g, rules: [{alert: A, expr: 'sum('}]}]\n")
    faults = daemon.reload()
    assert faults and faults[0].startswith(f"{rules}:1: group 'g': rule 'A'")
    shown = daemon.pipeline.own.last()
    assert shown["posttrain_watchdog_rules_reload_successful"] == 0
    assert shown["posttrain_watchdog_rules_loaded"] == 1
    assert [t.alert.name for t in daemon.tick().transitions] == ["A"]
    rules.write_text("groups: [{name: g, rules: [{alert: B, expr: vector(1)}]}]\n")
    assert daemon.reload() == []
    assert {(t.alert.name, t.state) for t in daemon.tick().transitions} == {("A", "resolved"), ("B", "firing")}
    asyncio.run(daemon.close())


def test_alerts_go_on_where_a_killed_daemon_left_them(tmp_path: Path) -> None:
    rules = tmp_path / "r.yml"
    rules.write_text("groups: [{name: g, rules: [{alert: A, expr: vector(1), for: 1m}]}]\n")
    settings = config(tmp_path / "run", free_port(), state=str(tmp_path / "state.sqlite"))
    moments = iter([1000.0] * 20)
    first = Daemon(settings, [rules], now=lambda: next(moments, 1000.0))
    assert [t.state for t in first.tick().transitions] == ["pending"]
    # no close: a kill leaves no time for one
    second = Daemon(settings, [rules], now=lambda: 1061.0)
    transitions = second.tick().transitions
    assert [(t.state, t.alert.active_at) for t in transitions] == [("firing", 1000.0)]
    for each in (first, second):
        asyncio.run(each.close())


def test_messages_can_be_had_in_chinese(tmp_path: Path) -> None:
    daemon = Daemon(config(tmp_path / "run", free_port(), alerting={"language": "zh"}), rule_files())
    rules = [r for g in daemon.pipeline.evaluator.rules_payload()["groups"] for r in g["rules"]]
    mode = next(r for r in rules if r["name"] == "LogprobsModeWrong")
    assert "docs/guide.zh.md" in mode["annotations"]["runbook"]
    assert daemon.reload() == []
    asyncio.run(daemon.close())


def test_files_that_cannot_be_read_are_a_metric_and_everything_else_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    steps = Steps(folder)
    (folder / "binary.log").write_bytes(bytes(range(256)) * 64)
    (folder / "empty.log").write_bytes(b"")
    daemon = Daemon(config(folder, free_port()), rule_files())
    while not steps.over:
        steps(Tick(0.0, ()))
    daemon.poll()
    daemon.tick()
    run = daemon.pipeline.runs["raw"]
    assert run.step is not None and run.step >= 59
    up = {m: v for m, v in daemon.pipeline.own.last().items() if m.startswith("posttrain_watchdog_source_up")}
    assert sorted(up.values()) == [0.0, 0.0, 1.0, 1.0]
    shown = daemon.pipeline.own.last()
    lines = {m: v for m, v in shown.items() if m.startswith("posttrain_watchdog_lines_total")}
    assert len(lines) == 2 and all(v > 400 for v in lines.values())
    assert {v for m, v in shown.items() if m.startswith("posttrain_watchdog_parse_errors_total")} == {0.0}
    assert shown["posttrain_watchdog_series_dropped_total"] == 0.0
    asyncio.run(daemon.close())


def test_a_daemon_without_samples_never_loads_torch(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from posttrain_watchdog.config import Config\n"
        "from posttrain_watchdog.daemon import Daemon\n"
        "from posttrain_watchdog.shipped import rule_files\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "(folder / 'train.log').write_text(\"{'loss': 0.1, 'grad_norm': 0.2, 'reward': 0.3, 'epoch': 0.1}\\n\" * 50)\n"
        "run = {'name': 'a', 'paths': [str(folder)]}\n"
        "config = Config.model_validate({'runs': [run], 'nvml': {'enabled': False}})\n"
        "daemon = Daemon(config, rule_files())\n"
        "daemon.poll(); daemon.tick()\n"
        "assert daemon.pipeline.runs['a'].step == 50\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_command_ends_cleanly_when_it_is_told_to(tmp_path: Path) -> None:
    import sys

    port = free_port()
    settings = tmp_path / "c.yaml"
    settings.write_text(
        f"web: {{listen: '127.0.0.1:{port}'}}\nnvml: {{enabled: false}}\n"
        f"runs: [{{name: a, paths: ['{tmp_path}/x.log']}}]\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "posttrain_watchdog", "run", "-c", str(settings)], stderr=subprocess.PIPE, text=True
    )
    try:
        over = deadline()
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200:
                    break
            except httpx.HTTPError:
                assert not over() and process.poll() is None
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        # a failed assertion must not leave a daemon behind
        process.kill()
        process.wait()
    assert "Traceback" not in errors
    assert process.returncode in (0, -signal.SIGTERM)
