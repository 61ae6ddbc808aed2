"""Makes the course of a run by hand: rows, events, ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict

import numpy as np
import orjson

from posttrain_watchdog.incidents.monitor import Monitor
from posttrain_watchdog.model import Diagnosis, Event, Metric, Row

PREFIX = "posttrain_trainer_"


def row(step: int | None, time: float | None = None, **values: float) -> Row:
    """A trainer's row; keys are short names of vocabulary.trainer."""
    return Row({Metric(PREFIX + k): float(v) for k, v in values.items()}, step, time)


def drive(items: Iterable[Row | Event], every: int = 1) -> tuple[Monitor, dict[str, Diagnosis], dict[str, int]]:
    """(monitor, last diagnoses by cause, step at which each cause was first said aloud)."""
    monitor = Monitor()
    now, first = 0.0, {}
    last: list[Diagnosis] = []
    for n, item in enumerate(items):
        monitor.observe(item)
        now = item.time if item.time is not None else now + 30.0
        if n % every == 0:
            last = monitor.tick(now)
            for each in last:
                if each.confidence >= 0.5 and item.step is not None:
                    first.setdefault(each.cause, item.step)
    last = monitor.tick(now)
    assert not monitor.failed
    orjson.dumps([asdict(d) for d in last])  # plain numbers and texts alone, as every reader of a diagnosis expects
    return monitor, {d.cause: d for d in last}, first


def loud(diagnoses: Mapping[str, Diagnosis]) -> dict[str, float]:
    return {c: d.confidence for c, d in diagnoses.items() if d.confidence >= 0.5}


def healthy(steps: int = 200, seed: int = 0, **changed: float) -> list[Row]:
    """A run with the noise of life: autocorrelated, heavy-tailed gradients, slow drifts that mean nothing."""
    random = np.random.default_rng(seed)
    walk = 0.0
    rows = []
    for step in range(1, steps + 1):
        walk = 0.9 * walk + random.normal() * 0.08
        values = {
            "loss": random.normal() * 0.05,
            "policy_loss": random.normal() * 0.05,
            "grad_norm": 0.3 * math.exp(random.standard_t(4) * 0.25),
            "entropy": 0.6 * math.exp(walk) * (1 - 0.3 * step / max(steps, 500)),
            "reward_mean": 0.3 + 0.2 * step / max(steps, 500) + 0.3 * walk * 0.1 + random.normal() * 0.02,
            "reward_std": abs(0.25 + random.normal() * 0.03),
            "zero_std_fraction": float(np.clip(0.2 + random.normal() * 0.1, 0, 1)),
            "kl_ref": 0.002 * step**0.5 * math.exp(random.normal() * 0.2),
            "ppo_kl": 2e-4 * math.exp(random.normal() * 0.5),
            "completion_length_mean": 600 * math.exp(walk * 0.5) + step * 0.8,
            "truncated_fraction": float(np.clip(0.05 + 0.2 * walk + random.normal() * 0.02, 0, 0.6)),
            "logprob_difference_abs_mean": 0.011 * math.exp(0.5 * walk + random.normal() * 0.08),
            "mismatch_kl_k3": 7e-4 * math.exp(walk + random.normal() * 0.3),
            "is_ratio_mean": 1 + random.normal() * 0.004,
            "step_seconds": 60 * math.exp(0.3 * walk + random.normal() * 0.05),
            "tokens_per_second": 9000 * math.exp(-0.3 * walk + random.normal() * 0.05),
            "learning_rate": 1e-6,
        }
        values.update(changed)
        rows.append(row(step, 60.0 * step, **values))
    return rows
