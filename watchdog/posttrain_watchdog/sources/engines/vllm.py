"""vLLM's log: engine starts with their arguments, deaths, reloads, sleep, throughput.

Promises: reads the lines of V0 and V1 up to 0.32, with or without process and Ray prefixes. `logprobs_mode` absent
from the printed non-default arguments is the default of that version, which `versions` knows.
Times carry no year in this log: they are given only where the caller knows the year. Never reads a clock.
CUDA out of memory, tracebacks and the like are the reader of failure lines' to find, in any log.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from posttrain_watchdog.model import Event, Metric, Row
from posttrain_watchdog.sources.engines.log_line import AccessLog, Who, moment, strip, without_secrets
from posttrain_watchdog.vocabulary.engine import PREFIX
from posttrain_watchdog.vocabulary.engine_versions import default_mode

_HEAD = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d+)? \[?([\w./-]+\.py):\d+\] ?"
)
_START = re.compile(r"Initializing an? (V\d )?LLM engine \(v?([\w.+-]+)\) with config: ")
_BANNER = re.compile(r"(?:vLLM API server version |\W*version +)(\d[\w.+-]*)")
_FIELD = re.compile(r"(?:^|[\s,(])(\w+)=('[^']*'|\"[^\"]*\"|[\w./:+-]+)")
_RATE = re.compile(r"([A-Z][\w ]*?): ([\d.]+)(?: ?(tokens/s|reqs|%))?(?:,|$)")
_ENGINE = re.compile(r"Engine (\d+): ")
_DEAD = re.compile(
    r"EngineCore encountered (?:a fatal error|an issue)|EngineCore failed to start|Engine core initialization failed"
    r"|Engine core proc(?:ess)? \S+ died unexpectedly|Worker proc \S+ died unexpectedly"
    r"|AsyncLLM output_handler failed|Engine loop is not running|MQLLMEngine terminated"
)
_SYNCED = re.compile(r"Reloading and processing weights took ([\d.]+) seconds")
_SLEPT = re.compile(r"It took ([\d.]+) seconds to (fall asleep|wake up)")
_PREEMPTED = re.compile(r"Sequence group \S+ is preempted by")
_SHOWN = (
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "enable_prefix_caching",
    "tensor_parallel_size",
    "data_parallel_size",
    "max_seq_len",
    "seed",
    "enforce_eager",
    "model",
)
_ARGUMENTS = ("logprobs_mode", "max_logprobs", "generation_config", "override_generation_config", "port")
_RATES = {
    "Avg prompt throughput": ("prompt_tokens_per_second", 1.0),
    "Avg generation throughput": ("generation_tokens_per_second", 1.0),
    "Running": ("requests_running", 1.0),
    "Waiting": ("requests_waiting", 1.0),
    "GPU KV cache usage": ("kv_cache_usage_ratio", 0.01),
    "CPU KV cache usage": ("kv_cache_usage_ratio", 0.01),
    "KV cache usage": ("kv_cache_usage_ratio", 0.01),
    "Prefix cache hit rate": ("prefix_cache_hit_ratio", 0.01),
}
_LONGEST_RATES = 1_000
_TELLS = re.compile(
    r"non-default args: |LLM engine \(v|Avg prompt throughput: |EngineCore|vLLM API server version |Engine \d{3}: "
)


def recognises(line: str) -> bool:
    """Whether the line is surely one of vLLM's own."""
    body, _ = strip(line)
    head = _HEAD.match(body)
    return head is not None and _TELLS.search(body, head.end()) is not None


class Dialect:
    """One vLLM log in order. `year` of its first line, where the caller knows it, gives the lines their times."""

    def __init__(self, year: int | None = None) -> None:
        self._year = year
        self._month = 0
        self._access = AccessLog()
        self._arguments: dict[str, str] | None = None
        self._version = ""
        self._dead: set[str] = set()
        self._corrupted = False
        self._time: float | None = None

    def feed(self, line: str) -> Iterator[Row | Event]:
        """Rows and events of one line, without its line break."""
        body, who = strip(line)
        head = _HEAD.match(body)
        if head is None:
            if "version" in body and (found := _BANNER.match(body)):
                self._version = found[1]
            yield from self._access.feed(body, who, self._time)
            return
        self._time = self._when(head[1], head[2])
        message = body[head.end() :]
        if '" ' in message and "HTTP/" in message:
            yield from self._access.feed(message, who, self._time)
            return
        yield from self._message(message, who)

    def close(self) -> Iterator[Row | Event]:
        """What was held back."""
        yield from self._access.close()

    def _when(self, day: str, clock: str) -> float | None:
        if self._year is None:
            return None
        month = int(day[:2])
        if month < self._month - 6:
            self._year += 1  # the log went over New Year
        self._month = month
        return moment(f"{self._year}-{day} {clock}")

    def _message(self, message: str, who: Who) -> Iterator[Row | Event]:
        if "throughput: " in message and (row := self._rates(message[:_LONGEST_RATES], who)) is not None:
            yield row
            yield from self._nan(message)
        elif message.startswith(("non-default args: ", "args: ")):
            self._arguments = arguments(message.partition("args: ")[2])
        elif found := _START.match(message):
            yield self._started(found[1] or "", found[2], message[found.end() :], who)
        elif _DEAD.match(message):
            key = who.replica
            if key not in self._dead:
                self._dead.add(key)
                yield self._event("engine_died", message, who)
        elif message.startswith("Reloading weights"):
            yield self._event("weight_sync_started", message, who)
        elif found := _SYNCED.match(message):
            yield self._event("weights_synced", message, who, seconds=found[1])
        elif found := _SLEPT.match(message):
            kind = "engine_slept" if found[2] == "fall asleep" else "engine_woke"
            yield self._event(kind, message, who, seconds=found[1])
        elif message.startswith("Successfully reset prefix cache"):
            yield self._event("prefix_cache_reset", message, who)
        elif _PREEMPTED.match(message):
            yield self._event("kv_retraction", message, who, count="1")
        elif found := _BANNER.match(message):
            self._version = found[1]

    def _event(self, kind: str, text: str, who: Who, **labels: str) -> Event:
        named = {k: v for k, v in {"replica": who.replica, **labels}.items() if v}
        return Event(kind, without_secrets(text[:2000].rstrip()), {"engine_family": "vllm", **named}, time=self._time)

    def _started(self, generation: str, version: str, config: str, who: Who) -> Event:
        """Label logprobs_mode: as given, or the version's default; not there if the arguments were never printed."""
        fields = {k: v.strip("'\"").removeprefix("torch.") for k, v in _FIELD.findall(config[:6000])}
        labels = {k: fields[k] for k in _SHOWN if fields.get(k, "None") != "None"}
        if self._arguments is not None:
            labels.update({k: v for k, v in self._arguments.items() if k in _ARGUMENTS})
            labels.setdefault("logprobs_mode", default_mode("vllm", version))
        self._dead.discard(who.replica)
        text = f"LLM engine (v{version}) with config: {config}"
        return self._event("engine_started", text, who, version=version, generation=generation.strip(), **labels)

    def _rates(self, message: str, who: Who) -> Row | None:
        engine = _ENGINE.match(message)
        labels = {"engine": str(int(engine[1])) if engine else "0", "replica": who.replica}
        rest = message[engine.end() :] if engine else message
        values: dict[Metric, float] = {}
        for name, number, _ in _RATE.findall(rest.rstrip(". ")):
            if name in _RATES:
                short, scale = _RATES[name]
                values[Metric(PREFIX + short, labels)] = float(number) * scale
            elif name in ("Preemptions", "Corrupted"):
                short = "preemptions_total" if name == "Preemptions" else "corrupted_requests_total"
                values[Metric(PREFIX + short, labels)] = float(number)
        return Row(values, time=self._time) if values else None

    def _nan(self, message: str) -> Iterator[Event]:
        corrupted = re.search(r"Corrupted: (\d+)", message)
        if corrupted is None or corrupted[1] == "0":
            return
        if not self._corrupted:
            self._corrupted = True
            labels = {"what": "logits", "count": corrupted[1], "engine_family": "vllm"}
            yield Event("nan_loss", message, labels, time=self._time)


def arguments(text: str) -> dict[str, str]:
    """Arguments as vLLM prints them: a dict of what is not default, or the whole argparse Namespace (up to 0.8)."""
    if text.startswith("{"):
        try:
            read = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pairs: Mapping[str, str] = dict(re.findall(r"'(\w+)': ('[^']*'|[\w.+-]+)", text))
            return {k: v.strip("'") for k, v in pairs.items()}
        return {str(k): str(v) for k, v in read.items()} if isinstance(read, dict) else {}
    return {k: v.strip("'\"") for k, v in _FIELD.findall(text.removeprefix("Namespace("))}
