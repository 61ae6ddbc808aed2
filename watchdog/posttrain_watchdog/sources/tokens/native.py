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
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from posttrain_watchdog.model import PER_TOKEN, TokenBatch
from posttrain_watchdog.sources.tokens.sheet import Floats, Record, Sheet, numbers_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


def from_records(records: Sequence[Record], *, prompts: bool = False) -> TokenBatch:
    """Decoded lines as one batch: the part that other JSON dialects share.

    `prompts`: the lists begin with the prompt. A sequence is kept from its first sampled token on: the first behind
    position 0, which no model predicts, that counts or that the engine gives a logprob.
    """
    sheet = Sheet.of(records, (*ENGINE, *TRAINER, *IDS, *MASK))
    engine, trainer = sheet.floats(ENGINE), sheet.floats(TRAINER)
    mask = sheet.mask(MASK, TOOL_MASK)  # TRL multiplies the two
    first, last = _span(sheet, engine, mask, prompts=prompts)
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
        prompt_length=first if prompts else _prompt_length(sheet),
        engine_length=_engine_length(sheet),
        trainer_length=sheet.lengths_of(TRAINER),
        temperature=sheet.numbers_or_none(("temperature",), np.float32, np.nan),
        group=_group(sheet),
        reward=sheet.numbers_or_none(("reward",), np.float32, np.nan),
        advantage=sheet.numbers_or_none(("advantage",), np.float32, np.nan),
        finish_reason=_texts(sheet.column(("finish_reason",))) if "finish_reason" in sheet.columns else None,
        prompt_ids=_prompt_ids(sheet),
    )
    batch.engine_top_ids, batch.engine_top_logprobs = _top(sheet)
    batch.labels, batch.extra = _others(sheet)
    return _cut(batch, first, last)


def load(line: bytes) -> Record:
    """The object of one line. Raises ValueError where it is none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        record = json.loads(line)  # Python writes bare NaN and Infinity, which JSON forbids
    if not isinstance(record, dict):
        raise ValueError(f"a line of {len(line)} bytes is no JSON object")
    return record


def _texts(column: Sequence[Any]) -> list[str]:
    return ["" if v is None else str(v) for v in column]


def _stable(value: Any) -> int:
    """The same number for the same name, in every batch and process."""
    if value is None:
        return -1
    if isinstance(value, (int, float)):
        return int(value)
    return int.from_bytes(blake2b(str(value).encode(), digest_size=7).digest(), "big")


def _group(sheet: Sheet) -> NDArray[np.int64] | None:
    if not any(n in sheet.columns for n in GROUP):
        return None
    return np.array([_stable(v) for v in sheet.column(GROUP)], np.int64)


def _prompt_ids(sheet: Sheet) -> list[NDArray[np.int32]] | None:
    column = sheet.lists(PROMPT_IDS)
    if column is None:
        return None
    return [np.array(v if type(v) is list else [], np.int32) for v in column]


def _prompt_length(sheet: Sheet) -> NDArray[np.int64] | None:
    given = sheet.numbers_or_none(PROMPT_LENGTH, np.int64, -1)
    return sheet.lengths_of(PROMPT_IDS) if given is None else given


def _engine_length(sheet: Sheet) -> NDArray[np.int64] | None:
    """What the engine returned: its ids where they are there, else its logprobs."""
    ids = sheet.lengths_of(ENGINE_IDS)
    logprobs = sheet.lengths_of(ENGINE)
    if ids is None or logprobs is None:
        return ids if logprobs is None else logprobs
    return np.where(ids < 0, logprobs, ids)


def _top(sheet: Sheet) -> tuple[NDArray[np.int32] | None, Floats | None]:
    """([T, K] ids, [T, K] logprobs) best first, from [[id, logprob], ...] or {"id": logprob} at each position."""
    column = sheet.lists(TOP)
    if column is None:
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


def _others(sheet: Sheet) -> tuple[dict[str, list[str]], dict[str, NDArray[Any]]]:
    """(labels, extra): what has no place of its own. Texts become labels; numbers, and lists of them, extra."""
    extra: dict[str, NDArray[Any]] = {}
    rescored = sheet.optional(RESCORED)
    if rescored is not None:
        extra["trainer_rescored"] = rescored
    given = [v if type(v) is dict else {} for v in sheet.columns.get("labels", ())]
    labels = {str(name): [str(v.get(name, "")) for v in given] for name in dict.fromkeys(chain.from_iterable(given))}
    for name in sorted(sheet.columns.keys() - KNOWN):
        column = sheet.columns[name]
        sample = next((v for v in column if v is not None), None)
        if isinstance(sample, str):
            labels[name] = _texts(column)
        elif isinstance(sample, (int, float)):
            extra[name] = numbers_of(column, np.nan)
        elif isinstance(sample, list) and all(not isinstance(x, (str, list, dict)) for x in sample[:1]):
            fits = all(type(v) is not list or len(v) == n for v, n in zip(column, sheet.lengths, strict=True))
            if fits:
                extra[name] = sheet.flat(column, np.float32, np.nan)
    return labels, extra


def _span(
    sheet: Sheet, engine: Floats, mask: NDArray[np.bool_], *, prompts: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[S], [S]: where each sequence begins and ends, less its prompt and the batch's padding.

    Padding: the unmasked tail in which the engine has exactly 0 or nothing. A sequence that would vanish so is
    kept whole: a completion that nobody scores is a finding.
    """
    lengths = np.array(sheet.lengths, np.int64)
    starts, ends = sheet.offsets[:-1], sheet.offsets[1:]
    given = np.isfinite(engine) & (engine != 0) | np.isinf(engine)
    given |= mask
    if np.isnan(engine).any():
        null = sheet.nulls(ENGINE, engine)
        given |= np.isnan(engine) & ~(null if null is not None else False)
    if prompts:
        given[starts[lengths > 0]] = False
    places = np.append(np.flatnonzero(given), sheet.offsets[-1])
    after = np.searchsorted(places, ends)
    some = after > np.searchsorted(places, starts)
    last = np.where(some, places[after - 1] + 1 - starts, lengths)
    if not prompts:
        return np.zeros(len(lengths), np.int64), last
    first = np.where(some, places[np.searchsorted(places, starts)] - starts, np.minimum(1, lengths))
    return first, last


def _cut(batch: TokenBatch, first: NDArray[np.int64], last: NDArray[np.int64]) -> TokenBatch:
    """The batch with the positions of each sequence from `first` up to `last`."""
    lengths = np.diff(batch.offsets)
    if not first.any() and (last == lengths).all():
        return batch
    place = np.arange(batch.tokens)
    keep = place < np.repeat(batch.offsets[:-1] + last, lengths)
    keep &= place >= np.repeat(batch.offsets[:-1] + first, lengths)
    tokens = batch.tokens
    for name in PER_TOKEN:
        value = getattr(batch, name)
        if value is not None:
            setattr(batch, name, value[keep])
    if batch.engine_null is not None and not np.isnan(batch.engine_logprobs).any():
        batch.engine_null = None  # what was missing was padding
    batch.extra = {k: v[keep] if len(v) == tokens else v for k, v in batch.extra.items()}
    for name in ("engine_length", "trainer_length"):
        value = getattr(batch, name)
        if value is not None:
            setattr(batch, name, np.where(value < 0, value, np.maximum(np.minimum(value, last) - first, 0)))
    batch.offsets = np.concatenate([[0], np.cumsum(last - first)]).astype(np.int64)
    return batch
