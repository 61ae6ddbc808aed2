"""JSON lines with one sequence each: the native form, and TRL's field names.

Promises: every line that holds token-level logprobs becomes one sequence of the batch, arrays of unequal length,
nulls, "NaN" and "-Infinity" included; fields it does not know are kept (`labels`, `extra`), so that a judge can ask
what diverging sequences share. Never reads a file, never pads, never drops a sequence.

Field names: the recorder's own (`engine_logprobs`, `trainer_logprobs`, `token_ids`, `mask`, ...), TRL 1.16.0's
(`sampling_per_token_logps`, `old_per_token_logps`, `completion_ids`, `completion_mask`, `tool_mask`, ...) and the
short ones of issue reports (`sampling_logps`, `trainer_logps`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import orjson

from posttrain_watchdog.model import PER_TOKEN, TokenBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

Record: TypeAlias = Mapping[str, Any]
Floats: TypeAlias = "NDArray[np.float32]"

ENGINE = ("engine_logprobs", "sampling_per_token_logps", "sampling_logps")
TRAINER = ("trainer_logprobs", "old_per_token_logps", "trainer_logps", "per_token_logps")
CURRENT = ("current_logprobs", "per_token_logps")
REFERENCE = ("reference_logprobs", "ref_per_token_logps", "ref_logps")
ENTROPY = ("entropy", "trainer_entropy", "entropies")
RESCORED = ("trainer_rescored", "trainer_logps_rescore", "trainer_logprobs_rescore")
IDS = ("token_ids", "completion_ids")
ENGINE_IDS = ("engine_token_ids", "engine_completion_ids")
MASK = ("mask", "completion_mask", "loss_mask", "response_mask")
TOOL_MASK = ("tool_mask",)
TOP = ("engine_top_logprobs", "top_logprobs")
VERSIONS = ("token_versions", "token_weight_versions", "engine_weight_versions", "weight_versions")
STEP = ("step", "global_step")
GROUP = ("group", "group_id", "prompt_id")
WEIGHT_VERSION = ("engine_weight_version", "weight_version")
TRAINER_VERSION = ("trainer_weight_version", "trainer_version")
PROMPT_LENGTH = ("prompt_length", "prompt_len")
PROMPT_IDS = ("prompt_ids", "prompt_token_ids")

_PER_TOKEN = (ENGINE, TRAINER, CURRENT, REFERENCE, ENTROPY, RESCORED, IDS, ENGINE_IDS, MASK, TOOL_MASK, TOP, VERSIONS)
_PER_SEQUENCE = (
    STEP,
    GROUP,
    WEIGHT_VERSION,
    TRAINER_VERSION,
    PROMPT_LENGTH,
    PROMPT_IDS,
    ("temperature",),
    ("reward",),
    ("advantage",),
    ("finish_reason",),
    ("labels",),
)
KNOWN = frozenset(chain.from_iterable((*_PER_TOKEN, *_PER_SEQUENCE)))
"""Names with a place of their own in TokenBatch; all others are kept by their own name."""


def recognises(record: Record) -> bool:
    """Is this one record of this dialect: per-token logprobs of at least one side, under a name known here?"""
    engine = any(isinstance(record.get(name), list) for name in ENGINE)
    trainer = any(isinstance(record.get(name), list) for name in TRAINER)
    tokens = any(isinstance(record.get(name), list) for name in (*IDS, *MASK))
    return (engine and (trainer or tokens)) or (trainer and tokens)


def read(lines: Sequence[bytes]) -> TokenBatch:
    """Complete lines as one batch, in their order. Raises ValueError where a line is no JSON object."""
    return from_records(list(records(lines)))


def records(lines: Iterable[bytes]) -> Iterator[Record]:
    """The objects of complete lines, empty ones left out. Raises ValueError where a line is no JSON object.

    One at a time: a dialect that cuts each record at once works on memory that is still in the cache.
    """
    return (load(line) for line in lines if line.strip())


def from_records(records: Sequence[Record]) -> TokenBatch:
    """Decoded lines as one batch: the part that other JSON dialects share."""
    keys: set[str] = set()
    for record in records:
        keys.update(record)
    sheet = _Sheet.of(records, keys)
    engine, trainer = sheet.floats(ENGINE), sheet.floats(TRAINER)
    mask = sheet.mask()
    live = _live(sheet, engine, mask)
    batch = TokenBatch(
        offsets=sheet.offsets,
        engine_logprobs=engine,
        trainer_logprobs=trainer,
        mask=mask,
        step=sheet.numbers(STEP, np.int64, -1),
        token_ids=sheet.ids(IDS),
        engine_token_ids=sheet.ids(ENGINE_IDS),
        entropy=sheet.optional(ENTROPY),
        reference_logprobs=sheet.optional(REFERENCE),
        current_logprobs=sheet.optional(CURRENT),
        engine_null=sheet.nulls(ENGINE, engine),
        token_versions=sheet.ids(VERSIONS),
        weight_version=sheet.numbers_or_none(WEIGHT_VERSION, np.int64, -1),
        trainer_version=sheet.numbers_or_none(TRAINER_VERSION, np.int64, -1),
        prompt_length=_prompt_length(sheet),
        engine_length=_engine_length(sheet),
        trainer_length=sheet.lengths_of(TRAINER),
        temperature=sheet.numbers_or_none(("temperature",), np.float32, np.nan),
        group=_group(sheet),
        reward=sheet.numbers_or_none(("reward",), np.float32, np.nan),
        advantage=sheet.numbers_or_none(("advantage",), np.float32, np.nan),
        finish_reason=_texts(sheet.column(("finish_reason",))) if "finish_reason" in keys else None,
        prompt_ids=_prompt_ids(sheet),
    )
    batch.engine_top_ids, batch.engine_top_logprobs = _top(sheet)
    batch.labels, batch.extra = _others(sheet, keys)
    return _trim(batch, live)


@dataclass(slots=True)
class _Sheet:
    """The records column by column; T and the offsets are those of the longest per-token field of each record."""

    records: Sequence[Record]
    keys: set[str]
    lengths: list[int]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, records: Sequence[Record], keys: set[str]) -> _Sheet:
        names = [n for n in chain(ENGINE, TRAINER, IDS, MASK) if n in keys]
        lengths = [0] * len(records)
        for name in names:
            lengths = [
                max(n, len(v)) if type(v := r.get(name)) is list else n for n, r in zip(lengths, records, strict=True)
            ]
        offsets = np.zeros(len(records) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(records, keys, lengths, offsets)

    def column(self, names: Iterable[str]) -> list[Any]:
        """Of each record the first of `names` that is there and not null."""
        present = [n for n in names if n in self.keys]
        if not present:
            return [None] * len(self.records)
        column = [r.get(present[0]) for r in self.records]
        for name in present[1:]:
            if None not in column:
                break
            column = [r.get(name) if v is None else v for v, r in zip(column, self.records, strict=True)]
        return column

    def flat(self, column: Sequence[Any], dtype: Any, missing: Any) -> NDArray[Any]:
        """[T] the lists of a column end to end, each filled up with `missing` to the record's length."""
        total = int(self.offsets[-1])
        if [len(v) if type(v) is list else -1 for v in column] == self.lengths:
            whole = column
        else:
            whole = [
                v[:n] + [missing] * (n - len(v)) if type(v) is list else [missing] * n
                for v, n in zip(column, self.lengths, strict=True)
            ]
        try:
            if dtype is np.bool_:
                with suppress(TypeError, ValueError):  # thrice as fast, for 0 and 1
                    return np.frombuffer(b"".join(map(bytes, whole)), np.uint8).astype(np.bool_)
            return np.fromiter(chain.from_iterable(whole), dtype, total)
        except (TypeError, ValueError, OverflowError):
            return np.array([_number(v, missing) for v in chain.from_iterable(whole)], np.float64).astype(dtype)

    def floats(self, names: Iterable[str]) -> Floats:
        return self.flat(self.column(names), np.float32, np.nan)

    def optional(self, names: Sequence[str]) -> Floats | None:
        column = self.column(names)
        return self.flat(column, np.float32, np.nan) if any(type(v) is list for v in column) else None

    def ids(self, names: Sequence[str]) -> NDArray[np.int32] | None:
        column = self.column(names)
        return self.flat(column, np.int32, -1) if any(type(v) is list for v in column) else None

    def mask(self) -> NDArray[np.bool_]:
        """[T] the completion mask, less what the tool mask takes out (TRL multiplies the two)."""
        column = self.column(MASK)
        if not any(type(v) is list for v in column):
            return np.ones(int(self.offsets[-1]), np.bool_)
        mask = self.flat(
            [v if type(v) is list else [1] * n for v, n in zip(column, self.lengths, strict=True)], np.bool_, 0
        )
        tools = self.column(TOOL_MASK)
        if any(type(v) is list for v in tools):
            kept = [v if type(v) is list else [1] * n for v, n in zip(tools, self.lengths, strict=True)]
            mask &= self.flat(kept, np.bool_, 1)
        return mask.astype(np.bool_, copy=False)

    def nulls(self, names: Sequence[str], values: Floats) -> NDArray[np.bool_] | None:
        """[T] where the source says null or nothing, as against "NaN"; None where nothing is missing."""
        if not np.isnan(values).any():
            return None
        null = [
            [x is None for x in v[:n]] + [True] * (n - len(v)) if type(v) is list else [True] * n
            for v, n in zip(self.column(names), self.lengths, strict=True)
        ]
        return np.fromiter(chain.from_iterable(null), np.bool_, len(values))

    def numbers(self, names: Sequence[str], dtype: Any, missing: float) -> NDArray[Any]:
        return np.array([_number(v, missing) for v in self.column(names)], np.float64).astype(dtype)

    def numbers_or_none(self, names: Sequence[str], dtype: Any, missing: float) -> NDArray[Any] | None:
        if not any(n in self.keys for n in names):
            return None
        return self.numbers(names, dtype, missing)

    def lengths_of(self, names: Sequence[str]) -> NDArray[np.int64] | None:
        column = self.column(names)
        if not any(type(v) is list for v in column):
            return None
        return np.array([len(v) if type(v) is list else -1 for v in column], np.int64)


def load(line: bytes) -> Record:
    """The object of one line. Raises ValueError where it is none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        record = json.loads(line)  # Python writes bare NaN and Infinity, which JSON forbids
    if not isinstance(record, dict):
        raise ValueError(f"a line of {len(line)} bytes is no JSON object")
    return record


def _number(value: Any, missing: float) -> float:
    if value is None or isinstance(value, (list, dict)):
        return missing
    try:
        return float(value)
    except ValueError:
        return missing


def _texts(column: Sequence[Any]) -> list[str]:
    return ["" if v is None else str(v) for v in column]


def _stable(value: Any) -> int:
    """The same number for the same name, in every batch and process."""
    if value is None:
        return -1
    if isinstance(value, (int, float)):
        return int(value)
    return int.from_bytes(blake2b(str(value).encode(), digest_size=7).digest(), "big")


def _group(sheet: _Sheet) -> NDArray[np.int64] | None:
    if not any(n in sheet.keys for n in GROUP):
        return None
    return np.array([_stable(v) for v in sheet.column(GROUP)], np.int64)


def _prompt_ids(sheet: _Sheet) -> list[NDArray[np.int32]] | None:
    column = sheet.column(PROMPT_IDS)
    if not any(type(v) is list for v in column):
        return None
    return [np.array(v if type(v) is list else [], np.int32) for v in column]


def _prompt_length(sheet: _Sheet) -> NDArray[np.int64] | None:
    given = sheet.numbers_or_none(PROMPT_LENGTH, np.int64, -1)
    return sheet.lengths_of(PROMPT_IDS) if given is None else given


def _engine_length(sheet: _Sheet) -> NDArray[np.int64] | None:
    """What the engine returned: its ids where they are there, else its logprobs."""
    ids = sheet.lengths_of(ENGINE_IDS)
    logprobs = sheet.lengths_of(ENGINE)
    if ids is None or logprobs is None:
        return ids if logprobs is None else logprobs
    return np.where(ids < 0, logprobs, ids)


def _top(sheet: _Sheet) -> tuple[NDArray[np.int32] | None, Floats | None]:
    """([T, K] ids, [T, K] logprobs) best first, from [[id, logprob], ...] or {"id": logprob} at each position."""
    column = sheet.column(TOP)
    if not any(type(v) is list for v in column):
        return None, None
    places: list[list[tuple[int, float]]] = []
    for value, n in zip(column, sheet.lengths, strict=True):
        given = value if type(value) is list else []
        places += [_candidates(p) for p in given[:n]] + [[]] * (n - len(given))
    width = max((len(p) for p in places), default=0) or 1
    ids = np.full((len(places), width), -1, np.int32)
    logprobs = np.full((len(places), width), np.nan, np.float32)
    for i, place in enumerate(places):
        for k, (token, logprob) in enumerate(place):
            ids[i, k], logprobs[i, k] = token, logprob
    return ids, logprobs


def _candidates(place: Any) -> list[tuple[int, float]]:
    pairs = place.items() if isinstance(place, dict) else place or ()
    try:
        return sorted(((int(t), float(lp)) for t, lp in pairs), key=lambda c: -c[1])
    except (TypeError, ValueError):
        return []


def _others(sheet: _Sheet, keys: set[str]) -> tuple[dict[str, list[str]], dict[str, NDArray[Any]]]:
    """(labels, extra): what has no place of its own. Texts become labels; numbers, and lists of them, extra."""
    labels: dict[str, list[str]] = {}
    extra: dict[str, NDArray[Any]] = {}
    rescored = sheet.optional(RESCORED)
    if rescored is not None:
        extra["trainer_rescored"] = rescored
    for record in sheet.records:
        if isinstance(record.get("labels"), dict):
            for name in record["labels"]:
                labels.setdefault(str(name), [])
    for name in labels:
        labels[name] = [str((r.get("labels") or {}).get(name, "")) for r in sheet.records]
    for name in sorted(keys - KNOWN):
        column = sheet.column((name,))
        sample = next((v for v in column if v is not None), None)
        if isinstance(sample, str):
            labels[name] = _texts(column)
        elif isinstance(sample, (int, float)):
            extra[name] = np.array([_number(v, np.nan) for v in column], np.float64)
        elif isinstance(sample, list) and all(not isinstance(x, (str, list, dict)) for x in sample[:1]):
            fits = all(type(v) is not list or len(v) == n for v, n in zip(column, sheet.lengths, strict=True))
            if fits:
                extra[name] = sheet.flat(column, np.float32, np.nan)
    return labels, extra


def _live(sheet: _Sheet, engine: Floats, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """[S] tokens of each sequence that are not the batch's padding.

    Padding: the unmasked tail in which the engine has exactly 0 or nothing. A sequence that would vanish so is
    kept whole: a completion that nobody scores is a finding.
    """
    lengths = np.array(sheet.lengths, np.int64)
    given = np.isfinite(engine) & (engine != 0) | np.isinf(engine)
    given |= mask
    if np.isnan(engine).any():
        null = sheet.nulls(ENGINE, engine)
        given |= np.isnan(engine) & ~(null if null is not None else False)
    places = np.flatnonzero(given)
    last = np.searchsorted(places, sheet.offsets[1:]) - 1
    live = np.zeros(len(lengths), np.int64)
    if len(places):
        live = np.where(last >= 0, places[np.maximum(last, 0)] + 1 - sheet.offsets[:-1], 0)
    return np.where(live > 0, live, lengths)


def _trim(batch: TokenBatch, live: NDArray[np.int64]) -> TokenBatch:
    """The batch without its padding."""
    lengths = np.diff(batch.offsets)
    if (live == lengths).all():
        return batch
    keep = np.repeat(batch.offsets[:-1] + live, lengths) > np.arange(batch.tokens)
    tokens = batch.tokens
    for name in PER_TOKEN:
        value = getattr(batch, name)
        if value is not None:
            setattr(batch, name, value[keep])
    batch.extra = {k: v[keep] if len(v) == tokens else v for k, v in batch.extra.items()}
    for name in ("engine_length", "trainer_length"):
        value = getattr(batch, name)
        if value is not None:
            setattr(batch, name, np.minimum(value, live))
    batch.offsets = np.concatenate([[0], np.cumsum(live)]).astype(np.int64)
    return batch
