"""What a stream of answers adds up to: counts, faults, and the numbers that calibration needs. Bounded memory.

Promises: adds, never judges (see `response_judge`); the same answers in any order give the same counts. The counts
are of all answers; what statistics are made of is the most recent part of each group of equal settings.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from dataclasses import dataclass, field
from math import exp, isfinite

from posttrain_watchdog.model import Metric, Row
from posttrain_watchdog.sources.engines.calibration import Calibration, calibrate
from posttrain_watchdog.sources.engines.responses import Answer, Position, finite
from posttrain_watchdog.vocabulary.engine import PREFIX

_KEPT = 20_000
_MOST_GROUPS = 16
_MOST_CONTEXTS = 4_000
_ROUNDING = 1e-3
"""a log-probability of a certain token can come out above 0 by rounding, not by this much"""


@dataclass(frozen=True, slots=True)
class Group:
    """Answers with the same settings."""

    temperature: float
    truncated: bool
    penalised: bool
    vllm: bool


@dataclass(frozen=True, slots=True)
class Opening:
    """Candidates of one context at one group's settings."""

    group: Group
    candidates: dict[str, float]


@dataclass(slots=True)
class Tally:
    """`temperature`: of requests that do not say theirs, where the trainer's configuration is known."""

    temperature: float | None = None
    codes: Counter[int] = field(default_factory=Counter)
    answers: int = 0
    asked: int = 0
    """answers whose request asked for logprobs, or bare ones in a stream where others have some"""
    asked_prompt: int = 0
    tokens: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    """missing, null, wrong_length, no_prompt_logprobs, not_finite, all_zero, refused: answers with that fault"""
    first_step: dict[str, int] = field(default_factory=dict)
    """fault -> first step, where the stream names steps"""
    bare_without: int = 0
    """answers without request and without logprobs: nobody knows whether they were asked for"""
    with_logprobs: int = 0
    positive: int = 0
    """tokens whose reported number is above 0"""
    overfull: int = 0
    """positions whose listed candidates have more than all of the probability"""
    lists: int = 0
    largest: float = float("-inf")
    example: dict[str, str] = field(default_factory=dict)
    """fault -> what one answer said"""
    groups: dict[Group, tuple[deque[Position], deque[int]]] = field(default_factory=dict)
    contexts: dict[tuple[str, ...], list[Opening]] = field(default_factory=dict)
    _computed: tuple[int, dict[Group, Calibration]] | None = None

    def add(self, answer: Answer) -> None:
        """Counts one answer."""
        self.codes[answer.status] += 1
        if answer.shape == "error":
            self._refusal(answer)
            return
        self.answers += 1
        self._count(answer)
        self._look(answer)
        self._keep(answer)

    def _fault(self, name: str, answer: Answer, said: str) -> None:
        self.faults[name] += 1
        self.example.setdefault(name, said)
        if answer.step is not None:
            self.first_step[name] = min(answer.step, self.first_step.get(name, answer.step))

    def _refusal(self, answer: Answer) -> None:
        if answer.settings.logprobs is None:
            return
        self.asked += 1
        if "logprob" in answer.error.lower() or "JSON compliant" in answer.error:
            self._fault("refused", answer, answer.error)

    def _count(self, answer: Answer) -> None:
        settings, read = answer.settings, answer.logprobs
        if settings.known and settings.logprobs is None:
            return
        if not settings.known and not read:
            self.bare_without += 1
            return
        self.asked += 1
        if settings.prompt_logprobs:
            self.asked_prompt += 1
            if not answer.prompt_given:
                self._fault("no_prompt_logprobs", answer, "prompt_logprobs asked for, none in the answer")
        if not read:
            if answer.tokens != 0:
                self._fault("missing", answer, "logprobs null" if read is None else "logprobs empty")
            return
        self.with_logprobs += 1
        self.tokens += len(read)
        if any(v is None for v in read):
            self._fault("null", answer, f"{sum(v is None for v in read)} of {len(read)} logprobs null")
        elif not all(finite(v) for v in read):
            self._fault("not_finite", answer, f"{next(v for v in read if not finite(v))!r}")
        elif len(read) > 1 and settings.temperature != 0 and not settings.penalised and all(v == 0 for v in read):
            self._fault("all_zero", answer, f"{len(read)} logprobs, all of them 0")
        if 0 <= answer.tokens != len(read):
            self._fault("wrong_length", answer, f"{len(read)} logprobs for {answer.tokens} tokens")

    def _look(self, answer: Answer) -> None:
        for value in answer.logprobs or ():
            if value is not None and isfinite(value):
                self.positive += value > _ROUNDING
                self.largest = max(self.largest, value)
        for listed in answer.listed:
            self.lists += 1
            self.overfull += any(v > _ROUNDING for v in listed) or sum(map(exp, listed)) > 1 + 10 * _ROUNDING

    def _keep(self, answer: Answer) -> None:
        settings = answer.settings
        temperature = settings.temperature if settings.temperature is not None else self.temperature
        if temperature is None or temperature <= 0:
            return
        group = Group(temperature, settings.truncated, settings.penalised, answer.vllm)
        if group not in self.groups and len(self.groups) >= _MOST_GROUPS:
            return
        positions, clusters = self.groups.setdefault(group, (deque(maxlen=_KEPT), deque(maxlen=_KEPT)))
        # the same seed gives the same random numbers whatever the prompt: such answers are one witness, not two
        cluster = settings.seed if settings.seed is not None else -self.answers
        positions.extend(answer.positions)
        clusters.extend(itertools.repeat(cluster, len(answer.positions)))
        if answer.context:
            said: list[str] = [answer.context]
            for token, candidates in answer.openings:
                self._place(tuple(said), Opening(group, candidates))
                said.append(token)

    def _place(self, context: tuple[str, ...], opening: Opening) -> None:
        held = self.contexts.get(context)
        if held is None:
            if len(self.contexts) >= _MOST_CONTEXTS:
                self.contexts.pop(next(iter(self.contexts)))
            held = self.contexts[context] = []
        if not any(o.group == opening.group for o in held) and len(held) < 4:
            held.append(opening)

    def calibrations(self) -> dict[Group, Calibration]:
        """What the sampled tokens of each group say; computed again once there are a twentieth more answers."""
        if self._computed is None or self.answers > self._computed[0] * 1.05:
            found = {g: calibrate(list(p), list(c)) for g, (p, c) in self.groups.items()}
            self._computed = (self.answers, {g: c for g, c in found.items() if c is not None})
        return self._computed[1]

    def row(self, time: float | None = None) -> Row:
        """The counts, and the temperature that each group's tokens were drawn at."""
        values = {Metric(PREFIX + "responses_total", {"code": str(c)}): float(n) for c, n in self.codes.items()}
        values |= {Metric(PREFIX + "response_faults_total", {"fault": f}): float(n) for f, n in self.faults.items()}
        values[Metric(PREFIX + "response_tokens_total")] = float(self.tokens)
        for group, found in self.calibrations().items():
            if group.truncated or group.penalised or not isfinite(found.distance(1.0)):
                continue
            labels = {"temperature": f"{group.temperature:g}"}
            name = PREFIX + "sampling_temperature_over_reported"
            values[Metric(name, labels)] = found.temperature
            values[Metric(name + "_error", labels)] = found.temperature_error
        return Row(values, time=time)
