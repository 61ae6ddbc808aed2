"""GPUs as rows and events. The driver is asked in a child process with a deadline: a hung driver hangs the child only.

Promises: no GPU or driver is one clear event-free answer (`nvml_up` 0), not an error; a lost GPU or a driver
reload ends the old series, is said once as `gpu_lost`, and is retried with back-off; an Xid is counted, with the
time of the last one per code. Never raises for what NVML does. Time is an argument.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from posttrain_watchdog.model import Event, Metric, Row
from posttrain_watchdog.vocabulary.gpu import PREFIX

NVML_UP = Metric("posttrain_watchdog_nvml_up")
_DEVICES = Metric(PREFIX + "devices")
_NO_DRIVER = {9, 12}
"""NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND: a machine without GPUs, asked again rarely."""
_FIRST_PAUSE, _LONGEST_PAUSE, _NO_DRIVER_PAUSE = 2.0, 300.0, 600.0


@dataclass(slots=True)
class Poll:
    """What one poll gave. `gone` are series that end now; `note` is a line for the log when something changed."""

    rows: list[Row] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    gone: list[Metric] = field(default_factory=list)
    note: str = ""


class NvmlPoller:
    """Polls all GPUs of this host. `roles` maps pids to trainer or engine, where that is known."""

    def __init__(
        self,
        deadline: float = 5.0,
        command: Sequence[str] = (sys.executable, "-m", "posttrain_watchdog.sources.host.nvml_probe"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._deadline = deadline
        self._command = list(command)
        self._environment = dict(os.environ if environment is None else environment)
        self._child: subprocess.Popen[bytes] | None = None
        self._pause = _FIRST_PAUSE
        self._not_before = 0.0
        self._live: set[Metric] = set()
        self._known: dict[str, str] = {}
        self._ever: set[str] = set()
        self._xids: dict[tuple[str, int], tuple[int, float]] = {}
        self._said = ""
        self.roles: dict[int, str] = {}

    def poll(self, now: float) -> Poll:
        """Asks once, unless a failure asked for patience; blocks `deadline` seconds at most."""
        if now < self._not_before:
            return Poll()
        answer = self._ask()
        return self._failed(answer, now) if "error" in answer else self._read(answer, now)

    def close(self) -> None:
        """Ends the child."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _ask(self) -> dict[str, Any]:
        try:
            if self._child is None or self._child.poll() is not None:
                self.close()
                self._child = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=self._environment,
                    bufsize=0,
                )
            line = self._exchange(self._child)
        except OSError as error:
            self.close()
            return {"error": f"the probe cannot run: {error}", "code": -1}
        if line is None:
            self.close()
            return {"error": f"the driver did not answer within {self._deadline:g} s", "code": -1}
        try:
            answer = orjson.loads(line)
        except orjson.JSONDecodeError:
            self.close()
            return {"error": "the probe died while asking the driver", "code": -1}
        return dict(answer)

    def _exchange(self, child: subprocess.Popen[bytes]) -> bytes | None:
        """One question, one line; None when the deadline passes first."""
        if child.stdin is None or child.stdout is None:
            raise OSError("the probe has no pipes")
        child.stdin.write(b"\n")
        parts: list[bytes] = []
        while True:
            ready, _, _ = select.select([child.stdout], [], [], self._deadline)
            if not ready:
                return None
            part = child.stdout.read(1 << 20)
            if not part:
                return b"".join(parts)
            parts.append(part)
            if part.endswith(b"\n"):
                return b"".join(parts)

    def _failed(self, answer: Mapping[str, Any], now: float) -> Poll:
        absent = answer.get("code") in _NO_DRIVER
        self._not_before = now + (_NO_DRIVER_PAUSE if absent else self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        poll = Poll(rows=[Row({NVML_UP: 0.0}, time=now)], gone=sorted(self._live, key=repr))
        if self._known:
            text = f"all GPUs stopped answering: {answer['error']}"
            poll.events.append(Event("gpu_lost", text, {"gpu": ",".join(sorted(self._known))}, time=now))
        self._live.clear()
        self._known.clear()
        poll.note = self._say(f"no GPU is watched: {answer['error']}")
        return poll

    def _read(self, answer: Mapping[str, Any], now: float) -> Poll:
        self._pause = _FIRST_PAUSE
        values: dict[Metric, float] = {NVML_UP: 1.0, _DEVICES: float(answer["count"])}
        poll = Poll()
        seen: dict[str, str] = {}
        for gpu in answer["gpus"]:
            self._read_gpu(gpu, str(answer["driver"]), values, seen)
        for bus in sorted(set(self._known) - set(seen)):
            text = f"GPU {bus} ({self._known[bus]}) is lost"
            poll.events.append(Event("gpu_lost", text, {"gpu": bus}, time=now))
        self._ever |= set(seen)
        for bus in self._ever - set(seen):
            values[Metric(PREFIX + "up", {"gpu": bus})] = 0.0
        for xid in answer["xids"]:
            self._count_xid(str(xid["gpu"]), int(xid["xid"]), now, poll)
        for (bus, code), (count, last) in self._xids.items():
            values[Metric(PREFIX + "xid_total", {"gpu": bus, "xid": str(code)})] = float(count)
            values[Metric(PREFIX + "xid_timestamp_seconds", {"gpu": bus, "xid": str(code)})] = last
        gone = self._live - set(values)
        lost = set(self._known) - set(seen)
        self._known = seen
        poll.gone = sorted(gone, key=repr)
        self._live = set(values)
        poll.rows.append(Row(values, time=now))
        if lost or answer["unreachable"]:
            # fresh handles: indices may have shifted, and a lost GPU may be back after a reset
            self.close()
            self._not_before = now + _FIRST_PAUSE
        failing = "; ".join(f"{g['gpu']}: {e}" for g in answer["gpus"] for e in g["errors"][:1])
        poll.note = self._say(f"{len(seen)} GPUs, driver {answer['driver']}" + (f"; {failing}" if failing else ""))
        return poll

    def _read_gpu(self, gpu: Mapping[str, Any], driver: str, values: dict[Metric, float], seen: dict[str, str]) -> None:
        bus = str(gpu["gpu"])
        at = {"gpu": bus}
        values[Metric(PREFIX + "up", at)] = 0.0 if gpu["lost"] else 1.0
        values[Metric(PREFIX + "last_collect_success", at)] = 0.0 if gpu["errors"] else 1.0
        if gpu["lost"]:
            return
        seen[bus] = str(gpu["name"])
        about = {"name": gpu["name"], "uuid": gpu["uuid"], "index": str(gpu["index"]), "driver": driver}
        values[Metric(PREFIX + "info", {**at, **about})] = 1.0
        for name, labels, value in gpu["readings"]:
            more = dict(labels)
            if "pid" in more:
                more["role"] = self.roles.get(int(more["pid"]), "other")
            values[Metric(PREFIX + name, {**at, **more})] = float(value)

    def _count_xid(self, bus: str, xid: int, now: float, poll: Poll) -> None:
        self._xids[bus, xid] = (self._xids.get((bus, xid), (0, now))[0] + 1, now)
        labels = {"gpu": bus, "xid": str(xid)}
        poll.events.append(Event("xid", f"NVML reports Xid {xid} on GPU {bus}", labels, time=now))

    def _say(self, text: str) -> str:
        """The text if it is news."""
        if text == self._said:
            return ""
        self._said = text
        return text
