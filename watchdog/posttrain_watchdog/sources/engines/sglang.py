"""SGLang's log: engine starts with their arguments, deaths, retractions, weight updates, throughput.

Promises: reads 0.4.9 to 0.5.23, "Decode batch, " and "Decode batch. ", "token usage" and "full token usage", with or
without Ray's prefix; of the tensor-parallel ranks only the first one counts. Times have no zone and are taken as UTC.
SGLang has no logprobs_mode: what its logprobs contain follows from its version and environment (see `versions`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from posttrain_watchdog.model import Event, Metric, Row
from posttrain_watchdog.sources.engines.log_line import AccessLog, Who, moment, strip, without_secrets
from posttrain_watchdog.vocabulary.engine import PREFIX

_HEAD = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)?(?: ((?:(?:DP|TP|PP|EP|ATTN_\w+?)\d+ ?)+))?\] ?"
    r"(?:\[?(?:INFO|WARNING|ERROR)\]? (?!\s))?(?:\[?[\w./]+\.py:\d+\]?:? )?"
)
_RANK = re.compile(r"([A-Z_]+?)(\d+)")
_BATCH = re.compile(r"(Decode|Prefill) batch(?: \[\d+\])?[,.] ?")
_PAIR = re.compile(r"(#?[A-Za-z][\w /()-]*?): (-?[\d.]+|True|False)(?:,|$)")
_RETRACT = re.compile(
    r"(?:KV cache pool is full\. Retract requests\.|Decode out of memory happened\.).*?#retracted_reqs: (\d+)"
)
_ARGUMENT = re.compile(r"\b(\w+)=('[^']*'|\"[^\"]*\"|[\w./:+-]+)")
_DEAD = re.compile(
    r"Scheduler hit an exception|TpModelWorkerClient hit an exception|SIGQUIT received|Received sigquit"
    r"|\w*(?: ?[Ww]atchdog)? ?watchdog timeout \(self\.watchdog_timeout=|Watchdog timeout \(self\.watchdog_timeout="
    r"|DetokenizerManager hit an exception|Initialization failed\. \w*error"
)
_SHOWN = (
    "model_path",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "disable_radix_cache",
    "sampling_defaults",
    "random_seed",
    "tp_size",
    "dp_size",
    "context_length",
    "rl_on_policy_target",
    "enable_deterministic_inference",
    "port",
)
_RATES = {
    "#running-req": "requests_running",
    "#queue-req": "requests_waiting",
    "full token usage": "kv_cache_usage_ratio",
    "token usage": "kv_cache_usage_ratio",
    "gen throughput (token/s)": "generation_tokens_per_second",
    "input throughput (token/s)": "prompt_tokens_per_second",
}
_LONGEST_RATES = 1_000
_TELLS = re.compile(
    r"(?:server_args=ServerArgs\(|Decode batch|Prefill batch|KV cache pool is full|#retracted_reqs"
    r"|INFO:\s+\S+ - \"POST /generate HTTP/)"
)


def recognises(line: str) -> bool:
    """Whether the line is surely one of SGLang's own."""
    body, _ = strip(line)
    head = _HEAD.match(body)
    return head is not None and _TELLS.match(body, head.end()) is not None


class Dialect:
    """One SGLang log in order."""

    def __init__(self) -> None:
        self._access = AccessLog()
        self._dead: set[str] = set()
        self._time: float | None = None

    def feed(self, line: str) -> Iterator[Row | Event]:
        """Rows and events of one line, without its line break."""
        body, who = strip(line)
        head = _HEAD.match(body)
        if head is None:
            yield from self._access.feed(body, who, self._time)
            return
        self._time = moment(head[1])
        if "HTTP/" in body or "JSON compliant" in body:
            yield from self._access.feed(body, who, self._time)
            return
        ranks = dict(_RANK.findall(head[2] or ""))
        if any(ranks.get(k, "0") != "0" for k in ("TP", "PP")):
            return
        yield from self._message(body[head.end() :], who, ranks.get("DP", "0"))

    def close(self) -> Iterator[Row | Event]:
        """What was held back."""
        yield from self._access.close()

    def _message(self, message: str, who: Who, engine: str) -> Iterator[Row | Event]:
        if found := _BATCH.match(message):
            labels = {"engine": engine, "replica": who.replica}
            values = {
                Metric(PREFIX + _RATES[name], labels): float(value)
                for name, value in _PAIR.findall(message[found.end() : _LONGEST_RATES])
                if name in _RATES and value not in ("True", "False")
            }
            if values:
                yield Row(values, time=self._time)
        elif found := _RETRACT.match(message):
            yield self._event("kv_retraction", message, who, engine, count=found[1])
        elif message.startswith("server_args=ServerArgs("):
            given = {k: v.strip("'\"") for k, v in _ARGUMENT.findall(message)}
            labels = {k: given[k] for k in _SHOWN if given.get(k, "None") != "None"}
            self._dead.discard(who.replica)
            yield self._event("engine_started", message, who, engine, **labels)
        elif _DEAD.search(message[:160]):
            if who.replica not in self._dead:
                self._dead.add(who.replica)
                yield self._event("engine_died", message, who, engine)
        elif message.startswith("Update weights end"):
            yield self._event("weights_synced", message, who, engine)
        elif message.startswith("Cache flushed successfully"):
            yield self._event("prefix_cache_reset", message, who, engine)
        elif "Detected errors during sampling! NaN in the logits" in message[:120]:
            yield self._event("nan_loss", message, who, engine, what="logits")

    def _event(self, kind: str, text: str, who: Who, engine: str, **labels: str) -> Event:
        named = {k: v for k, v in {"replica": who.replica, "engine": engine, **labels}.items() if v}
        return Event(kind, without_secrets(text)[:2000].rstrip(), {"engine_family": "sglang", **named}, time=self._time)
