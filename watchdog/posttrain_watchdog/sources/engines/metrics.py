"""An engine's /metrics as rows under canonical names, whatever the engine, its version and what lies between.

Promises: names by the tables of `names`; histograms stay histograms (`_bucket`, `_sum`, `_count`); a series that the
endpoint shows twice (Ray exports counters with and without `_total`; two generations of a name) counts once; a line
that cannot be read is skipped. `posttrain_engine_seconds_per_token` and `posttrain_engine_tokens_per_second` are
those between two readings.
Never fetches anything (see `scrape`), reads no clock.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import orjson

from posttrain_watchdog.model import Metric, Row
from posttrain_watchdog.sources.engines.names import LABELS, PREFIXES, SAME_ON_EVERY_RANK, TABLES
from posttrain_watchdog.vocabulary import METRICS
from posttrain_watchdog.vocabulary.engine import PREFIX

_HEAD = re.compile(r"([A-Za-z_:][\w:]*)\s*(?:\{(.*)\})?", re.S)
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_MOST_KNOWN = 20_000
_LONGEST = 8_192
_PARTS = ("_bucket", "_sum", "_count")
_STARTS = tuple(PREFIXES)
_GENERATED = PREFIX + "generation_tokens_total"
_SUM, _COUNT = PREFIX + "inter_token_seconds_sum", PREFIX + "inter_token_seconds_count"

Sample = tuple[str, float]
"""what stands before the value (name and labels as written), and the value"""


@dataclass(frozen=True, slots=True)
class _Placed:
    """What a written name and its labels are: computed once, since an endpoint repeats them at every scrape."""

    metric: Metric
    generation: int
    """0 is the newest name"""
    short: str
    own: frozenset[tuple[str, str]]
    """all labels: which series of the endpoint it is"""


def _native_names() -> Mapping[str, Mapping[str, tuple[str, int]]]:
    """family -> native name -> (canonical short name, generation: 0 is the newest)."""
    return {
        family: {native: (short, age) for short, natives in table.items() for age, native in enumerate(natives)}
        for family, table in TABLES.items()
    }


_NATIVE = _native_names()


def recognises(text: str) -> bool:
    """Whether a text in Prometheus' format comes from an engine."""
    return any(line.startswith(_STARTS) for line in text.splitlines())


def samples(text: str) -> Iterator[Sample]:
    """(name with labels, value) of the engine's lines in a text in Prometheus' or OpenMetrics' format."""
    for line in text.splitlines():
        if line.startswith(_STARTS) and len(line) <= _LONGEST:
            end = line.rfind("}", 0, line.find(" # ") if " # " in line else len(line)) + 1
            end = end or line.find(" ")
            rest = line[end:].split(None, 1)
            try:
                yield line[:end], float(rest[0])
            except (ValueError, IndexError):
                continue


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return text.replace("\\\\", "\0").replace('\\"', '"').replace("\\n", "\n").replace("\0", "\\")


def canonical(
    read: Iterable[Sample], labels: Mapping[str, str] | None = None, known: dict[str, _Placed | None] | None = None
) -> dict[Metric, float]:
    """Readings under canonical names. `labels` are added to each (source, where several endpoints are read).

    `known` remembers what written names are, for the next call with the same labels.
    """
    known = {} if known is None else known
    chosen: dict[Metric, tuple[int, float]] = {}
    added: dict[Metric, set[frozenset[tuple[str, str]]]] = {}
    for head, value in read:
        if head not in known:
            if len(known) >= _MOST_KNOWN:
                known.clear()
            known[head] = _placed(head, labels or {})
        placed = known[head]
        if placed is None:
            continue
        metric, age = placed.metric, placed.generation
        before = chosen.get(metric)
        if before is None or age < before[0]:
            chosen[metric] = (age, value)
            added[metric] = {placed.own}
        elif age == before[0] and placed.own not in added[metric]:
            added[metric].add(placed.own)  # two models or adapters behind one engine
            ratio = placed.short.endswith("_ratio") or placed.short == "awake"
            chosen[metric] = (age, max(value, before[1]) if ratio else value + before[1])
    return {metric: value for metric, (_, value) in chosen.items()}


def _placed(head: str, labels: Mapping[str, str]) -> _Placed | None:
    """What a name with its labels is; None if no table knows it, or if it cannot be read."""
    found = _HEAD.fullmatch(head) if len(head) <= _LONGEST else None
    if found is None:
        return None
    inside = found[2] or ""
    place = _place(found[1])
    if place is None or _LABEL.sub("", inside).strip():
        return None
    canonical_name, age, short = place
    native = {k: _unescape(v) for k, v in _LABEL.findall(inside)}
    if any(native.get(rank, "0") not in ("0", "") for rank in SAME_ON_EVERY_RANK):
        return None
    if short == "awake" and native.get("sleep_state", "awake") != "awake":
        return None
    kept = {LABELS[k]: v for k, v in native.items() if k in LABELS and v}
    kept.setdefault("engine", "0")
    return _Placed(Metric(canonical_name, {**kept, **labels}), age, short, frozenset(native.items()))


def _place(name: str) -> tuple[str, int, str] | None:
    for prefix, family in PREFIXES.items():
        if name.startswith(prefix):
            native = name[len(prefix) :]
            table = _NATIVE[family]
            for part in ("", *_PARTS):
                base = native.removesuffix(part) if part else native.removesuffix("_total")
                found = table.get(base)
                if found is None or (part and base == native):
                    continue
                short, age = found
                if (METRICS[PREFIX + short].kind == "histogram") == bool(part):
                    return PREFIX + short + part, age, short
            return None
    return None


class MetricsReader:
    """Readings of one endpoint in order: adds what needs two readings."""

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        self._labels = dict(labels or {})
        self._before: dict[Metric, tuple[float, float]] = {}
        self._generated: dict[Metric, tuple[float, float]] = {}
        self._known: dict[str, _Placed | None] = {}

    def read(self, text: str, time: float | None = None) -> Row:
        """A scrape's text as a row; a row without values if nothing in it is an engine's."""
        return self.read_samples(samples(text), time)

    def read_samples(self, read: Iterable[Sample], time: float | None = None) -> Row:
        """The same from samples already parsed."""
        values = canonical(read, self._labels, self._known)
        for metric in [m for m in values if m.name == _SUM]:
            count = values.get(Metric(_COUNT, metric.labels))
            if count is None:
                continue
            now = (values[metric], count)
            total, tokens = self._before.get(metric, (0.0, 0.0))
            self._before[metric] = now
            if now[1] < tokens:  # the engine restarted: its counters began again
                total, tokens = 0.0, 0.0
            passed = now[1] - tokens
            mean = (now[0] - total) / passed if passed > 0 else math.nan
            values[Metric(PREFIX + "seconds_per_token", metric.labels)] = mean
        if time is not None:
            values.update(self._rates(values, time))
        return Row(values, time=time)

    def _rates(self, values: Mapping[Metric, float], time: float) -> dict[Metric, float]:
        rates: dict[Metric, float] = {}
        for metric in [m for m in values if m.name == _GENERATED]:
            before = self._generated.get(metric)
            self._generated[metric] = (time, values[metric])
            if before is not None and time > before[0] and values[metric] >= before[1]:
                rate = (values[metric] - before[1]) / (time - before[0])
                rates[Metric(PREFIX + "tokens_per_second", metric.labels)] = rate
        return rates


class ScrapeLog:
    """A file of scrapes, one JSON object a line: {"t": seconds, "m": {'name{label="v"}': value}}.

    The time may be called t, ts, time or timestamp; the samples m, metrics or samples, or `text` holding the
    endpoint's text.
    """

    _TIMES = ("t", "ts", "time", "timestamp")
    _SAMPLES = ("m", "metrics", "samples", "text")

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        self._reader = MetricsReader(labels)

    @classmethod
    def recognises(cls, record: Mapping[str, object]) -> bool:
        """Whether a line's object is a scrape of an engine."""
        if not any(isinstance(record.get(k), (int, float)) for k in cls._TIMES):
            return False
        held = next((record[k] for k in cls._SAMPLES if k in record), None)
        if isinstance(held, str):
            return recognises(held)
        return isinstance(held, dict) and any(isinstance(k, str) and k.startswith(_STARTS) for k in held)

    def feed(self, lines: Sequence[bytes]) -> Iterator[Row]:
        """A row a scrape; lines that are not scrapes are skipped."""
        for line in lines:
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError:
                try:
                    record = msgspec.json.decode(line)
                except msgspec.DecodeError:
                    continue
            if not isinstance(record, dict) or not self.recognises(record):
                continue
            time = next(float(record[k]) for k in self._TIMES if isinstance(record.get(k), (int, float)))
            held = next(record[k] for k in self._SAMPLES if k in record)
            if isinstance(held, str):
                yield self._reader.read(held, time)
            else:
                pairs = [
                    (k, float(v)) for k, v in held.items() if isinstance(v, (int, float)) and k.startswith(_STARTS)
                ]
                yield self._reader.read_samples(pairs, time)
