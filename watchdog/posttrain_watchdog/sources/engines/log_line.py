"""What engine log lines have in common: prefixes, time, access lines.

Promises: pure; takes off Ray's, the process's and the logger's prefixes and colours, so that patterns begin at the
message: a prompt or completion that an engine prints inside a line cannot forge one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from posttrain_watchdog.model import Event, Metric, Row
from posttrain_watchdog.vocabulary.engine import PREFIX

_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_PROCESS = re.compile(r"\(([A-Za-z_][\w.<>-]*)(?: pid=(\d+))?(?:, ip=([\d.a-fA-F:]+))?\) ")
_ACCESS = re.compile(
    r"(?:INFO:?\s+|\[[^\]]*\] INFO:\s+)[\w.\[\]:-]+ - \"([A-Z]+) (\S+) HTTP/[\d.]+\" (\d{3})(?: [\w -]*)?$"
)
_GENERATES = re.compile(r"/(?:generate|v1/(?:chat/)?completions|v1/responses|inference/v1/generate)/?(?:\?|$)")


@dataclass(frozen=True, slots=True)
class Who:
    """Who printed a line: the names and pids of its prefixes, outermost first."""

    actors: tuple[str, ...] = ()
    pids: tuple[str, ...] = ()

    @property
    def replica(self) -> str:
        """The pid that Ray put in front; empty where only the engine's own processes are named."""
        ray = [p for a, p in zip(self.actors, self.pids, strict=True) if not a.startswith(_OWN)]
        return ray[0] if ray else ""


_OWN = ("APIServer", "EngineCore", "VllmWorker", "Worker_", "EngineManager", "ApiServer", "Worker")
"""Names that vLLM gives its own processes; anything else in front is Ray's actor."""


LONGEST = 20_000
"""characters of a line that are looked at: arguments of an engine fill some thousands"""
_SECRET = re.compile(r"\b(\w*(?:api_key|secret|password|hf_token|_token)['\"]?[=:] ?)(\[[^\]]*\]|'[^']*'|\"[^\"]*\")")


def without_secrets(text: str) -> str:
    """Printed arguments without the values of those that look secret: SGLang prints its api_key."""
    return _SECRET.sub(r"\1<hidden>", text)


def strip(line: str) -> tuple[str, Who]:
    """The line without colours and process prefixes, and who they name."""
    line = line[:LONGEST]
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    actors: list[str] = []
    pids: list[str] = []
    while (found := _PROCESS.match(line)) is not None:
        actors.append(found[1])
        pids.append(found[2] or "")
        line = line[found.end() :]
    return line, Who(tuple(actors), tuple(pids))


def moment(text: str) -> float | None:
    """Seconds since the epoch of "2026-01-31 23:59:59", no zone, taken as UTC; None if it is no time."""
    try:
        numbers = [int(text[a:b]) for a, b in ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))]
        return datetime(*numbers[:6], tzinfo=timezone.utc).timestamp()  # type: ignore[misc,arg-type]
    except ValueError:
        return None


class AccessLog:
    """Counts requests for generation in uvicorn's access lines, and says which failed.

    A request that failed is said when it is known that no other line explains it: the reader of failure lines names
    those whose traceback says that a logprob cannot be written as JSON.
    """

    def __init__(self) -> None:
        self._counts: dict[Metric, float] = {}
        self._open: list[Event] = []

    def feed(self, line: str, who: Who, time: float | None) -> Iterator[Row | Event]:
        """`line` without process prefixes."""
        if self._open and "JSON compliant" in line:
            self._open.pop()
            return
        if "HTTP/" not in line:
            return
        found = _ACCESS.search(line)
        if found is None or found[1] != "POST" or not _GENERATES.search(found[2]):
            return
        yield from self.close()
        code = found[3]
        metric = Metric(PREFIX + "requests_total", {"engine": "0", "replica": who.replica, "code": code})
        self._counts[metric] = self._counts.get(metric, 0.0) + 1
        yield Row({metric: self._counts[metric]}, time=time)
        if code.startswith("5"):
            total = sum(self._counts.values())
            failed = sum(n for m, n in self._counts.items() if dict(m.labels)["code"].startswith("5"))
            labels = {"code": code, "path": found[2], "failed": f"{failed:.0f}", "requests": f"{total:.0f}"}
            self._open.append(Event("engine_request_failed", line.strip(), labels, time=time))

    def close(self) -> Iterator[Event]:
        """Failed requests that nothing explained so far."""
        held, self._open = self._open, []
        yield from held
