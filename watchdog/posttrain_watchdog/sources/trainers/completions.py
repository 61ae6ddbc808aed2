"""Completions that trainers write beside their metrics: are they still text?

Two forms of JSON lines: one object a completion ({"step", "completion", ...}) and one a step with a list in every
column (ms-swift 4: {"step": ["12", ...], "completion": [...]}); the columns of TRL's Parquet files come through
`judge` as they are. Promises: a step is judged once, when the next one begins; the texts themselves are never kept,
and nothing in them is ever taken for a metric.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers.steps import whole
from posttrain_watchdog.sources.trainers.text import number

_LINE = re.compile(r'\{"(?:step|gen_step|global_step|prompt|completion|input)"\s*:')
_STEPS = ("step", "gen_step", "global_step")
_TEXTS = ("completion", "completions", "response", "output")
_LONG = 100
"""Characters from which a text can be told to repeat itself."""
_RATE = 0.1
"""Compressed to less than this part it repeats itself; English prose comes to 0.4 to 0.6, source code to 0.2 to 0.4."""
_PART = 0.5
"""Part of a step's completions that must be degenerate to say so."""
_HEAD = 4096


def recognises(line: str) -> bool:
    head = line[:_HEAD]
    return _LINE.match(head) is not None and any(f'"{key}"' in head for key in _TEXTS)


def degenerate(text: str) -> str:
    """How a completion is no text any more: "empty", "repeats", or "" where it is fine."""
    if not text.strip():
        return "empty"
    raw = text[:_HEAD].encode("utf-8", "replace")
    if len(raw) >= _LONG and len(zlib.compress(raw, 1)) < _RATE * len(raw):
        return "repeats"
    return ""


def judge(texts: Sequence[str], step: int | None) -> list[Event]:
    """The event of one step, where half of its completions or more are degenerate in the same way."""
    kinds = [degenerate(text) for text in texts]
    counts = {what: kinds.count(what) for what in ("repeats", "empty")}
    examples = {kind: text for text, kind in zip(reversed(texts), reversed(kinds), strict=True)}
    return degenerate_event(counts, len(texts), examples, step)


def degenerate_event(
    counts: Mapping[str, int], texts: int, examples: Mapping[str, str], step: int | None
) -> list[Event]:
    """The event of one step from how many of its texts are degenerate, and one of each way."""
    for what, count in counts.items():
        if texts and count >= _PART * texts:
            said = f"{count} of {texts} completions: {what}: {examples[what][:60]!r}"
            return [Event("samples_degenerate", said, {"what": what}, step)]
    return []


class Dialect:
    """Reads one completions.jsonl."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._step: int | None = None
        self._texts: list[str] = []

    def feed(self, line: str) -> Iterable[Row | Event]:
        if not recognises(line):
            return ()
        try:
            record: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeError):
            return ()
        found: list[Row | Event] = []
        for step, text in _samples(record):
            if step != self._step:
                found += self.close()
                self._step = step
            self._texts.append(text)
        return found

    def close(self) -> list[Row | Event]:
        texts, self._texts = self._texts, []
        return list(judge(texts, self._step))


def texts_of(value: object) -> str:
    """The text of a completion: itself, or the contents of its messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return "\n".join(texts_of(each) for each in value)
    if isinstance(value, dict):
        return texts_of(value.get("content") or "")
    return ""


def _samples(record: dict[str, Any]) -> Iterable[tuple[int | None, str]]:
    step = next((record[key] for key in _STEPS if key in record), None)
    value = next((record[key] for key in _TEXTS if key in record), None)
    if isinstance(step, list) and isinstance(value, list):
        return [(_whole(s), texts_of(v)) for s, v in zip(step, value, strict=False)]
    return [(_whole(step), texts_of(value))]


def _whole(value: object) -> int | None:
    if isinstance(value, str):
        return whole(number(value))
    return whole(float(value)) if isinstance(value, (int, float)) else None
