"""What the checklist needs, gathered from what travels through the pipeline: rows, events, diagnoses, facts.

Promises: pools the steps of a run into one figure with its standard error; keeps no series. Reads no clock and no file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from posttrain_watchdog.model import Diagnosis, Event, Row

POOLED = (
    "posttrain_importance_ratio_mean",
    "posttrain_kl_k1",
    "posttrain_kl_k2",
    "posttrain_kl_k3",
    "posttrain_unscored_fraction",
    "posttrain_non_finite_fraction",
)
"""means over the tokens of a step: pooled over steps, weighted by tokens"""
AVERAGED = (
    "posttrain_engine_seconds_per_token",
    "posttrain_trainer_tokens_per_second",
    "posttrain_engine_tokens_per_second",
    "posttrain_trainer_wait_seconds",
    "posttrain_trainer_step_seconds",
)
"""one reading, one vote"""
WORST_LOW = ("posttrain_gpu_memory_reserve_ratio",)
WORST_HIGH = ("posttrain_importance_ratio_max",)
LAST = (
    "posttrain_calibration_factor",
    "posttrain_trainer_is_correction_factor",
    "posttrain_collective_timeout_seconds",
)
_RATIO = "posttrain_importance_ratio_mean"
_STDERR = "posttrain_importance_ratio_stderr"
_TOKENS = "posttrain_tokens_compared"
_WINDOW = "100"


@dataclass(slots=True)
class Measured:
    """One figure: its value, its standard error where it has one, and how much it rests on."""

    value: float
    samples: int
    unit: str = "readings"
    stderr: float | None = None


@dataclass(slots=True)
class _Sum:
    total: float = 0.0
    weight: float = 0.0
    variance: float = 0.0
    has_error: bool = False
    not_finite: bool = False


@dataclass(slots=True)
class Measurements:
    """Gathers a run. `observe` everything that the pipeline sees, then hand it to `verify`."""

    facts: dict[str, str] = field(default_factory=dict)
    """engine, engine_version, logprobs_mode, torch_version, is_mode, is_cap, correction_interval, correction_window,
    collective_timeout, prompt_logprobs: what logs and configurations say in words"""
    diagnoses: list[Diagnosis] = field(default_factory=list)
    _sums: dict[str, _Sum] = field(default_factory=dict)
    _single: dict[str, Measured] = field(default_factory=dict)
    _tokens: float = 0.0

    def observe(self, item: Row | Event) -> None:
        """Takes a row's figures into the pool, an engine's start into the facts."""
        if isinstance(item, Event):
            if item.kind == "engine_started":
                for label, fact in (
                    ("version", "engine_version"),
                    ("engine", "engine"),
                    ("logprobs_mode", "logprobs_mode"),
                ):
                    if item.labels.get(label):
                        self.facts[fact] = item.labels[label]
            return
        values: dict[str, list[float]] = {}
        windows: dict[str, float] = {}
        for metric, value in item.values.items():
            if metric.name.endswith("_window_mean"):
                if ("window", _WINDOW) in metric.labels:
                    windows[metric.name.removesuffix("_window_mean")] = value
            else:
                values.setdefault(metric.name, []).append(value)
        if windows.get(_TOKENS, 0.0) > 0:
            self._observe_windows(windows, values)
        else:
            tokens = max(values.get(_TOKENS, [0.0]))
            self._tokens += tokens
            for name in POOLED:
                for value in values.get(name, ()):
                    error = values[_STDERR][0] if name == _RATIO and _STDERR in values else None
                    self._pool(name, value, tokens, error)
        for name in AVERAGED:
            for value in values.get(name, ()):
                if math.isfinite(value):  # NaN says that there was nothing to measure
                    self._pool(name, value, 1.0, None)
        for name in (*WORST_LOW, *WORST_HIGH, *LAST):
            for value in values.get(name, ()):
                self._keep(name, value)

    def _observe_windows(self, windows: Mapping[str, float], values: Mapping[str, Sequence[float]]) -> None:
        """The series of a running daemon: the last 100 steps stand for the run, fewer where it has fewer."""
        tokens = windows[_TOKENS]
        total = max(values.get(_TOKENS + "_total", [tokens]))
        steps = max(1.0, min(float(_WINDOW), total / tokens))
        self._tokens += tokens * steps
        for name in POOLED:
            if name in windows:
                error = windows.get(_STDERR, math.nan) / math.sqrt(steps) if name == _RATIO else None
                self._pool(name, windows[name], tokens * steps, error)

    def observe_all(self, items: Iterable[Row | Event]) -> None:
        for item in items:
            self.observe(item)

    def add_facts(self, facts: Mapping[str, str]) -> None:
        self.facts.update({k: v for k, v in facts.items() if v != ""})

    @property
    def tokens(self) -> int:
        return int(self._tokens)

    def get(self, name: str) -> Measured | None:
        """The figure of a metric; None where it was never measured."""
        if name in self._single:
            return self._single[name]
        found = self._sums.get(name)
        if found is None or found.weight <= 0:
            return None
        value = math.nan if found.not_finite else found.total / found.weight
        error = math.sqrt(found.variance) / found.weight if found.has_error else None
        return Measured(value, int(found.weight), "tokens" if name in POOLED else "readings", error)

    def _pool(self, name: str, value: float, weight: float, error: float | None) -> None:
        pool = self._sums.setdefault(name, _Sum())
        if not math.isfinite(value):
            pool.not_finite = True
            pool.weight += weight
            return
        pool.total += weight * value
        pool.weight += weight
        if error is not None and math.isfinite(error):
            pool.variance += (weight * error) ** 2
            pool.has_error = True

    def _keep(self, name: str, value: float) -> None:
        before = self._single.get(name)
        if before is None or name in LAST:
            self._single[name] = Measured(value, 1 + (before.samples if before else 0))
            return
        worst = min(before.value, value) if name in WORST_LOW else max(before.value, value)
        self._single[name] = Measured(worst, before.samples + 1)
