"""Records as people attach them to issues: one or two steps, tens of sequences, no entropy, noise of 1 %.

Each position has a distribution over candidates, mostly peaked, sometimes broad, as a language model's; the token is
really sampled, and both sides report what they would.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np

from posttrain_watchdog.model import TokenBatch
from posttrain_watchdog.sources.tokens import native

EOS = 151645
Record = dict[str, object]


def distributions(rng: np.random.Generator, count: int) -> np.ndarray:
    """[count, 40] logits, best first: six of ten positions leave little choice, the others some"""
    logits = -np.sort(rng.exponential(1.0, (count, 40)), axis=1) * rng.choice([0.5, 1.0, 2.0], count)[:, None]
    logits[:, 0] += np.where(rng.random(count) < 0.6, rng.uniform(3.0, 9.0, count), 0.0)
    return logits


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def record(
    rng: np.random.Generator,
    step: int = 1,
    length: int = 80,
    sampled_at: float = 1.0,
    reported_at: float = 1.0,
    trained_at: float = 1.0,
    top_p: float = 1.0,
    noise: float = 0.01,
) -> Record:
    logits = distributions(rng, length)
    sampling = log_softmax(logits / sampled_at)
    if top_p < 1.0:
        p = np.exp(sampling)
        reached = np.cumsum(p, axis=1) - p
        sampling = log_softmax(np.where(reached < top_p, sampling, -1e9))
    reported = sampling if reported_at == sampled_at else log_softmax(logits / reported_at)
    trained = log_softmax(logits / trained_at)
    choice = (np.exp(sampling).cumsum(axis=1) > rng.random((length, 1))).argmax(axis=1)
    rows = np.arange(length)
    s, t = reported[rows, choice], trained[rows, choice]
    ids = rng.integers(1000, 8000, (length, 40))[rows, choice]
    ids[-1] = EOS
    return {
        "step": step,
        "token_ids": ids.tolist(),
        "mask": [1] * length,
        "engine_logprobs": [round(float(v), 6) for v in s],
        "trainer_logprobs": [round(float(v), 6) for v in np.minimum(0, t * (1 + noise * rng.normal(size=length)))],
        "finish_reason": "stop",
    }


def batch(records: Iterable[Record]) -> TokenBatch:
    return native.read([json.dumps(r).encode() for r in records])
