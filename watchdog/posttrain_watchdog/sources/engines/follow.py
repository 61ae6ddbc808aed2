"""An engine's lines in any text log: its own, or a trainer's console that carries the engine's output.

Promises: costs one scan by a finite automaton on lines of no engine; nothing is said before a line that is surely
an engine's, except access lines kept from before it. Engines of both kinds may share a log.
"""

from __future__ import annotations

from collections.abc import Iterable

import re2

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.engines import sglang, vllm
from posttrain_watchdog.sources.engines.log_line import LONGEST

_HINT = re2.compile(
    r"tokens/s|non-default args|vLLM|LLM engine|EngineCore|Engine core|Worker proc|eloading|seconds to (fall|wake)"
    r"|prefix cache|preempted by|ngine loop|HTTP/1|JSON compliant|version \d|args: Namespace"
    r"|batch[,. ]+.{0,8}#|server_args=|#retracted|hit an exception|SIGQUIT|sigquit|atchdog timeout|Update weights"
    r"|Cache flushed|NaN in the logits"
)
_SGLANG = re2.compile(r"[Dd]ecode batch|Prefill batch|server_args=|#retracted|POST /generate")
_MOST_WAITING = 200


class EngineLines:
    """Reads the engines' lines of one log in order. `year` of the log's first line, if known, dates vLLM's lines."""

    def __init__(self, year: int | None = None) -> None:
        self._vllm = vllm.Dialect(year)
        self._sglang = sglang.Dialect()
        self._waiting: list[str] = []
        self.engine = ""
        """vllm or sglang, once a line was surely one's"""

    def feed(self, line: str) -> Iterable[Row | Event]:
        """The rows and events of one line, without its line break."""
        if _HINT.search(line) is None:
            return ()
        if self.engine != "vllm" and vllm.recognises(line):
            self.engine = "vllm"
        elif self.engine != "sglang" and _SGLANG.search(line) and sglang.recognises(line):
            self.engine = "sglang"
        elif not self.engine:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append(line[:LONGEST])
            return ()
        lines, self._waiting = [*self._waiting, line], []
        dialect = self._vllm if self.engine == "vllm" else self._sglang
        return [item for each in lines for item in dialect.feed(each)]

    def close(self) -> Iterable[Row | Event]:
        """What was held back."""
        return [*self._vllm.close(), *self._sglang.close()]
