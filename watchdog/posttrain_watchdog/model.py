"""The things that travel: Metric and Row, Event, TokenBatch, Diagnosis, Alert.

Promises: plain data, no I/O, no clock, no behaviour beyond cheap derived views.
A `Row` holds the readings of one log line, because a line of 60 keys is read, stored and stamped as one;
`Reading` is one of them, for those who want them singly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LabelPairs = tuple[tuple[str, str], ...]
"""Label names and values, sorted by name, without `__name__`."""


def _escaped(value: str) -> str:
    """A label's value as Prometheus' text format writes it."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


class Metric(str):
    """The identity of one series: a name of the vocabulary and its labels.

    It is the text by which the series is written, `name{label="value"}`, so that hashing and comparing cost what
    they cost for a string: once, in C. A row of 60 keys is hashed some hundred thousand times a second.
    """

    __slots__ = ("labels", "name")

    name: str
    labels: LabelPairs

    def __new__(cls, name: str, labels: Mapping[str, str] | LabelPairs = ()) -> Metric:
        pairs = labels.items() if isinstance(labels, Mapping) else labels
        kept = tuple(sorted([(k, v) for k, v in pairs if v != ""]))
        text = name
        if kept:
            inside = ",".join([f'{k}="{_escaped(v)}"' for k, v in kept])
            text = f"{name}{{{inside}}}"
        made = str.__new__(cls, text)
        made.name = name
        made.labels = kept
        return made

    def __reduce__(self) -> tuple[type[Metric], tuple[str, LabelPairs]]:
        return Metric, (self.name, self.labels)

    def __repr__(self) -> str:
        return str.__str__(self)

    def with_labels(self, extra: Mapping[str, str]) -> Metric:
        """The same metric with more labels; labels it already has win."""
        return Metric(self.name, {**extra, **dict(self.labels)})


@dataclass(frozen=True, slots=True)
class Reading:
    """One canonical number."""

    metric: Metric
    value: float
    step: int | None = None
    time: float | None = None


@dataclass(slots=True)
class Row:
    """The readings that one record of a source gives: same step, same time.

    `step` is the trainer's step as it counts it; None where the source knows none (host, engine).
    `time` is seconds since the epoch read from the source itself; None where it has no timestamp.
    """

    values: dict[Metric, float]
    step: int | None = None
    time: float | None = None
    fills: bool = False
    """stands in for what no log reports: derived from samples, and no sign of what the trainer is doing now"""

    def readings(self) -> Iterator[Reading]:
        for metric, value in self.values.items():
            yield Reading(metric, value, self.step, self.time)


@dataclass(slots=True)
class Event:
    """Something that happened once. `kind` is one of vocabulary.EVENTS; `text` is the line that said so."""

    kind: str
    text: str
    labels: dict[str, str] = field(default_factory=dict)
    step: int | None = None
    time: float | None = None


PER_TOKEN = frozenset(
    {
        "engine_logprobs",
        "trainer_logprobs",
        "mask",
        "token_ids",
        "engine_token_ids",
        "entropy",
        "reference_logprobs",
        "current_logprobs",
        "engine_null",
        "engine_top_logprobs",
        "engine_top_ids",
        "token_versions",
    }
)
"""Fields of TokenBatch whose first axis is T; a new one is named here too (a test sees to it)."""


@dataclass(slots=True)
class TokenBatch:
    """Sequences with what engine and trainer say of their tokens. Ragged, never padded.

    T tokens in all, S sequences; sequence s owns tokens offsets[s]:offsets[s+1]. Only completion positions
    are kept (prompt positions too where a source has logprobs for them; the mask then says which count).
    A logprob that the source gives as null, or does not give, is NaN in the arrays and True in `engine_null`;
    one that the source itself calls NaN or infinite stays so, with `engine_null` False.
    """

    offsets: NDArray[np.int64]
    """[S+1]"""
    engine_logprobs: NDArray[np.float32]
    """[T] what the engine said of the token it sampled"""
    trainer_logprobs: NDArray[np.float32]
    """[T] what the trainer says, recomputed before the update where the source has it ("old")"""
    mask: NDArray[np.bool_]
    """[T] True where the token counts in the loss"""
    step: NDArray[np.int64]
    """[S] optimizer step as the source counts it; -1 unknown"""
    token_ids: NDArray[np.int32] | None = None
    """[T] ids that the trainer scored; -1 unknown"""
    engine_token_ids: NDArray[np.int32] | None = None
    """[T] ids that the engine sampled, where the source has them apart from `token_ids`; -1 unknown"""
    entropy: NDArray[np.float32] | None = None
    """[T] the trainer's full-vocabulary entropy in nats, NaN where unknown"""
    reference_logprobs: NDArray[np.float32] | None = None
    """[T]"""
    current_logprobs: NDArray[np.float32] | None = None
    """[T] the policy in the loss, where it differs from `trainer_logprobs`"""
    engine_null: NDArray[np.bool_] | None = None
    """[T] True where the engine logprob is null or absent rather than a number"""
    engine_top_logprobs: NDArray[np.float32] | None = None
    """[T, K] the engine's best K candidates, best first, NaN padded"""
    engine_top_ids: NDArray[np.int32] | None = None
    """[T, K]"""
    token_versions: NDArray[np.int32] | None = None
    """[T] weight version that sampled each token, -1 unknown"""
    weight_version: NDArray[np.int64] | None = None
    """[S] weight version of the engine when it sampled, -1 unknown"""
    trainer_version: NDArray[np.int64] | None = None
    """[S] weight version of the trainer when it scored, -1 unknown"""
    prompt_length: NDArray[np.int64] | None = None
    """[S] tokens in the prompt, -1 unknown"""
    engine_length: NDArray[np.int64] | None = None
    """[S] tokens that the engine returned for the sequence, -1 unknown"""
    trainer_length: NDArray[np.int64] | None = None
    """[S] tokens that the trainer holds for the sequence, -1 unknown"""
    temperature: NDArray[np.float32] | None = None
    """[S] NaN unknown"""
    group: NDArray[np.int64] | None = None
    """[S] prompt group within the step, -1 unknown"""
    reward: NDArray[np.float32] | None = None
    """[S] NaN unknown"""
    advantage: NDArray[np.float32] | None = None
    """[S] NaN unknown"""
    finish_reason: Sequence[str] | None = None
    """[S] "stop", "length", "" unknown"""
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """what tells sequences apart (replica, rank, dataset, source, turn, prompt): name -> [S] values, "" unknown"""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """arrays of a source that only one judge knows: name -> [S] or [T] array"""
    prompt_ids: Sequence[NDArray[np.int32]] | None = None
    """[S] ids of each prompt"""
    lineage: str = ""
    """folder whose numbered folders are attempts of one run, empty where the file lies in none"""
    attempt: int = 0
    """number in the lineage: a resumed run, it takes the place of lower ones from its first step on"""
    reading: int = 0
    """times that the file was written anew while it was followed: takes the place of lower ones step by step"""

    @property
    def tokens(self) -> int:
        return int(self.offsets[-1])

    @property
    def sequences(self) -> int:
        return len(self.offsets) - 1

    def select(self, rows: NDArray[np.int64]) -> TokenBatch:
        """The sequences `rows` of this batch, in that order, as a batch of their own (a copy)."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        starts = np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths)
        places = starts + np.arange(offsets[-1])
        chosen: dict[str, Any] = {"offsets": offsets}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "offsets" or value is None:
                continue
            if isinstance(value, (str, int)):
                chosen[each.name] = value
            elif each.name == "labels":
                chosen["labels"] = {k: [v[i] for i in rows] for k, v in value.items()}
            elif each.name == "extra":
                chosen["extra"] = {k: v[places] if len(v) == self.tokens else v[rows] for k, v in value.items()}
            elif isinstance(value, np.ndarray):
                chosen[each.name] = value[places] if each.name in PER_TOKEN else value[rows]
            else:
                chosen[each.name] = [value[i] for i in rows]
        return TokenBatch(**chosen)

    def by_step(self) -> Iterator[tuple[int, TokenBatch]]:
        """The batch cut at its steps, ascending, -1 (unknown) first."""
        steps = np.unique(self.step)
        if len(steps) == 1:
            yield int(steps[0]), self
            return
        for step in steps:
            yield int(step), self.select(np.flatnonzero(self.step == step))


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A named cause. `confidence` is computed by the one rule documented in docs/diagnosis.md."""

    cause: str
    """one of vocabulary.CAUSES"""
    confidence: float
    """0..1; from 0.5 on it is said aloud"""
    summary: str
    """one sentence with the figures that show it"""
    evidence: Mapping[str, float | str]
    first_checks: tuple[str, ...]
    """what to look at first, second, third"""
    first_step: int | None = None
    """first step at which the fault is in the data"""
    last_step: int | None = None
    tokens: int = 0
    """sample size behind it, 0 where it does not rest on tokens"""
    labels: LabelPairs = ()
    """which replica, rank, GPU, dataset, where that is known"""


AlertState = Literal["inactive", "pending", "firing"]


@dataclass(slots=True)
class Alert:
    """An alert as Prometheus has it."""

    name: str
    labels: dict[str, str]
    """including alertname and severity"""
    annotations: dict[str, str]
    state: AlertState
    active_at: float
    value: float
    fired_at: float | None = None
    resolved_at: float | None = None
    last_seen: float | None = None
    keep_firing_since: float | None = None
    rule: str = ""
    """group/name of the rule that made it"""
