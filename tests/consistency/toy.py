"""A small language model with two sides: tokens are really sampled, both sides score them exactly, faults are injected.

A bigram softmax over `vocab` tokens whose weights move a little with every step, as training moves them. The engine
samples from its own weights, temperature, truncation and penalties; the trainer scores with its own. Six significant
digits as in real dumps; number-format noise where asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from posttrain_watchdog.model import TokenBatch

EOS = 1


@dataclass
class Side:
    """How one side turns logits into a distribution."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    penalty: float = 1.0
    raw: bool = False
    """reports logprobs of the plain logits whatever it samples from"""
    noise: float = 0.0
    """relative noise of the logits: a number format"""


@dataclass
class Toy:
    """One run. `lag(step)`: how many updates the engine's weights are behind at that step."""

    seed: int = 0
    vocab: int = 96
    steps: int = 40
    sequences: int = 8
    groups: int = 2
    longest: int = 40
    update: float = 0.05
    engine: Side = field(default_factory=lambda: Side(0.9))
    trainer: Side = field(default_factory=lambda: Side(0.9))
    lag: Callable[[int], int] = field(default=lambda step: 0)
    corrupt_from: int | None = None
    tail: float = 0.0
    """share of tokens whose trainer logits are jumbled: routing"""
    wrong_prefix: Callable[[int], bool] = field(default=lambda step: False)
    """the trainer sees another previous token than the engine from the middle of a sequence on"""

    def run(self) -> TokenBatch:
        rng = np.random.default_rng(self.seed)
        v = self.vocab
        scale = rng.choice([0.3, 1.5, 3.0], v)[:, None]
        weights = [rng.normal(0, 1, (v, v)) * scale]
        weights[0][:, EOS] = rng.normal(0.5, 0.5, v) + weights[0].max(axis=1) - 2.5
        direction = rng.normal(0, 1, (v, v))
        for _ in range(self.steps):
            direction = 0.7 * direction + 0.7 * rng.normal(0, 1, (v, v))
            size = self.update * rng.lognormal(0, 0.5)
            weights.append(weights[-1] + size * (direction * 0.7 + 0.02 * weights[0]))
        wrong = weights[0] + rng.normal(0, 1.5, (v, v)) * (rng.random((v, 1)) < 0.5)
        rows = [self._step(step, rng, weights, wrong) for step in range(self.steps)]
        return _batch([r for part in rows for r in part])

    def _step(
        self, step: int, rng: np.random.Generator, weights: list[np.ndarray], wrong: np.ndarray
    ) -> list[dict[str, object]]:
        ours = weights[step]
        theirs = weights[max(0, step - self.lag(step))]
        if self.corrupt_from is not None and step >= self.corrupt_from:
            theirs = theirs + (wrong - weights[0])
        prompts = rng.integers(2, self.vocab, self.groups)
        rows = []
        for i in range(self.sequences):
            prompt = int(prompts[i * self.groups // self.sequences])
            rows.append(self._sequence(step, i * self.groups // self.sequences, prompt, rng, ours, theirs))
        return rows

    def _sequence(
        self, step: int, group: int, prompt: int, rng: np.random.Generator, ours: np.ndarray, theirs: np.ndarray
    ) -> dict[str, object]:
        ids: list[int] = []
        s, t, h = [], [], []
        before = prompt
        turn = int(rng.integers(3, 12))
        while len(ids) < self.longest:
            seen = [prompt, *ids]
            logits = _noisy(theirs[before], self.engine, rng)
            p = _distribution(logits, self.engine, seen)
            token = int(rng.choice(len(p), p=p))
            reported = _distribution(logits, Side(), seen) if self.engine.raw else p
            context = before
            if self.wrong_prefix(step) and len(ids) >= turn and len(ids) % 4 != 3:
                context = (before * 7 + 3) % self.vocab
            scored = _noisy(ours[context], self.trainer, rng)
            if self.tail and rng.random() < self.tail:
                scored = scored + rng.normal(0, 1.2, len(scored))
            q = _distribution(scored, self.trainer, seen)
            ids.append(token)
            s.append(float(np.log(reported[token])) if reported[token] > 0 else -np.inf)
            t.append(float(np.log(q[token])))
            positive = q[q > 0]
            h.append(float(-(positive * np.log(positive)).sum()))
            before = token
            if token == EOS:
                break
        return {"step": step, "group": group, "prompt": prompt, "ids": ids, "s": s, "t": t, "h": h}


def _noisy(logits: np.ndarray, side: Side, rng: np.random.Generator) -> np.ndarray:
    return logits * (1.0 + side.noise * rng.normal(0, 1, len(logits))) if side.noise else logits


def _distribution(logits: np.ndarray, side: Side, seen: list[int]) -> np.ndarray:
    z = logits
    if side.penalty != 1.0:
        z = z.copy()
        old = np.unique(seen)
        z[old] = np.where(z[old] > 0, z[old] / side.penalty, z[old] * side.penalty)
    z = z / side.temperature
    p = np.exp(z - z.max())
    p /= p.sum()
    if side.top_k:
        p[np.argsort(-p)[side.top_k :]] = 0.0
        p /= p.sum()
    if side.min_p:
        p[p < side.min_p * p.max()] = 0.0
        p /= p.sum()
    if side.top_p < 1.0:
        order = np.argsort(-p)
        reached = np.cumsum(p[order])
        p[order[1:][reached[:-1] >= side.top_p]] = 0.0
        p /= p.sum()
    return p


def _digits(values: list[float]) -> np.ndarray:
    return np.array([float(f"{v:.6g}") for v in values], np.float32)


def _batch(rows: list[dict[str, object]]) -> TokenBatch:
    lengths = [len(r["ids"]) for r in rows]  # type: ignore[arg-type]

    def flat(name: str) -> list[float]:
        return [x for r in rows for x in r[name]]  # type: ignore[attr-defined]

    return TokenBatch(
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        engine_logprobs=_digits(flat("s")),
        trainer_logprobs=_digits(flat("t")),
        mask=np.ones(sum(lengths), np.bool_),
        step=np.array([r["step"] for r in rows], np.int64),
        token_ids=np.array(flat("ids"), np.int32),
        entropy=_digits(flat("h")),
        group=np.array([r["group"] for r in rows], np.int64),
        prompt_ids=[np.array([r["prompt"]], np.int32) for r in rows],
    )
