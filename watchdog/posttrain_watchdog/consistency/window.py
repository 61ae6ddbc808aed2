"""The tokens of some steps as the judges see them: aligned arrays, what is scored, what cannot have been sampled.

Promises: views computed once, on demand. Never changes a batch. d = trainer logprob - engine logprob throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from posttrain_watchdog.model import TokenBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLAMPED_INFINITY = -9000.0
"""vLLM's HTTP server writes -9999.0 for -inf (vllm/entrypoints/openai, 0.31.0); no sampled token comes near it"""
POSITIVE = 2.0**-6
"""a logprob may exceed 0 by the rounding of its number format (a bf16 head near 1), not by more"""
UNLIKELY = -0.7
"""an exact 0 from the engine is a certain token: the trainer then gives it at least the mass that the sampling kept,
more than exp(-0.7) = 1/2 for any top-p above 1/2"""


@dataclass
class History:
    """What the monitor knows of all steps so far, windows included: per-step sums that outlive the tokens."""

    rms: dict[int, float] = field(default_factory=dict)
    """step -> root mean square of d over scored tokens"""
    level: dict[int, float] = field(default_factory=dict)
    """step -> (mean of sqrt|d|)^2: the size of the bulk, which a few far-off tokens do not make"""
    abs_mean: dict[int, float] = field(default_factory=dict)
    drift: dict[int, float] = field(default_factory=dict)
    """step -> sum of d"""
    tokens: dict[int, int] = field(default_factory=dict)
    fit_xd: dict[int, float] = field(default_factory=dict)
    """step -> sum of x d, x the regressor of tempering.py"""
    fit_xx: dict[int, float] = field(default_factory=dict)
    steps_seen: int = 0

    def forget(self, step: int) -> None:
        for sums in (self.rms, self.level, self.abs_mean, self.drift, self.fit_xd, self.fit_xx):
            sums.pop(step, None)
        self.tokens.pop(step, None)


@dataclass
class Window:
    """The sampled sequences of the last steps, and the history that reaches further back."""

    batch: TokenBatch
    history: History = field(default_factory=History)
    whole: bool = True
    """all steps that are kept, not only the latest of them"""
    memo: dict[str, Any] = field(default_factory=dict)

    def remember(self, name: str, compute: Callable[[Window], Any]) -> Any:
        """What several judges derive from the same window, computed once."""
        if name not in self.memo:
            self.memo[name] = compute(self)
        return self.memo[name]

    @cached_property
    def sequence(self) -> NDArray[np.int64]:
        """[T] which sequence"""
        return np.repeat(np.arange(self.batch.sequences), self.lengths)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.batch.offsets)

    @cached_property
    def position(self) -> NDArray[np.int64]:
        """[T] place in its sequence"""
        return np.arange(self.batch.tokens) - np.repeat(self.batch.offsets[:-1], self.lengths)

    @cached_property
    def token_step(self) -> NDArray[np.int64]:
        return self.batch.step[self.sequence]

    @cached_property
    def steps(self) -> list[int]:
        return [int(s) for s in np.unique(self.batch.step)]

    @cached_property
    def engine(self) -> NDArray[np.float64]:
        return self.batch.engine_logprobs.astype(np.float64)

    @cached_property
    def trainer(self) -> NDArray[np.float64]:
        return self.batch.trainer_logprobs.astype(np.float64)

    @cached_property
    def null(self) -> NDArray[np.bool_]:
        """[T] the source gives no engine logprob here"""
        if self.batch.engine_null is None:
            return np.zeros(self.batch.tokens, np.bool_)
        return self.batch.engine_null

    @cached_property
    def non_finite(self) -> NDArray[np.bool_]:
        """[T] a side says NaN or infinity, or the engine's clamped -inf; nulls are not among them"""
        trainer = np.isinf(self.trainer) | (np.isnan(self.trainer) & ~self._trainer_absent)
        return ((~np.isfinite(self.engine) | (self.engine < CLAMPED_INFINITY)) & ~self.null) | trainer

    @cached_property
    def _trainer_absent(self) -> NDArray[np.bool_]:
        """[T] the trainer's side is NaN from some position to the end of the sequence, or all of it: not there"""
        nan = np.isnan(self.trainer)
        if not nan.any():
            return nan
        last = np.full(self.batch.sequences, -1, np.int64)
        there = np.flatnonzero(~nan)
        np.maximum.at(last, self.sequence[there], self.position[there])
        return self.position > last[self.sequence]

    @cached_property
    def both(self) -> NDArray[np.bool_]:
        """[T] finite on both sides, mask or no mask"""
        return np.isfinite(self.engine) & np.isfinite(self.trainer) & (self.engine > CLAMPED_INFINITY)

    @cached_property
    def scored(self) -> NDArray[np.bool_]:
        """[T] counts in the loss and is finite on both sides"""
        return self.batch.mask & self.both

    @cached_property
    def positive(self) -> NDArray[np.bool_]:
        """[T] the engine's value cannot be a logprob"""
        return self.scored & (self.engine > POSITIVE)

    @cached_property
    def unscored_runs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(start, end) of runs of tokens that the engine did not sample: exact 0, exact 1 or null, and unlikely.

        A run counts where the trainer finds at least one of its tokens less likely than anything that truncated
        sampling leaves (UNLIKELY, or the lowest d among the tokens with a real logprob), or where it is null.
        """
        blank = (self.engine == 0.0) | (self.engine == 1.0) | self.null
        real = self.scored & ~blank
        lowest = min(UNLIKELY, float(self.d_all[real].min()) if real.any() and self._one_sided(real) else UNLIKELY)
        edge = np.diff(np.concatenate([[0], blank.astype(np.int8), [0]]))
        starts, ends = np.flatnonzero(edge == 1), np.flatnonzero(edge == -1)
        cuts = self.batch.offsets[1:-1]
        inside = np.unique(cuts[blank[np.minimum(cuts, len(blank) - 1)] & blank[cuts - 1]]) if len(cuts) else cuts
        starts = np.sort(np.concatenate([starts, inside]))
        ends = np.sort(np.concatenate([ends, inside]))
        keep = starts < ends
        starts, ends = starts[keep], ends[keep]
        if not len(starts):
            return starts, ends
        # outside the runs everything is 0, so that the reduction may run on to the next start
        trainer = np.where(np.isnan(self.trainer) | ~blank, 0.0, self.trainer)
        odd = np.minimum.reduceat(trainer, starts) < lowest
        odd |= np.maximum.reduceat((self.null & blank).astype(np.int8), starts) > 0
        return starts[odd], ends[odd]

    @cached_property
    def unscored_by_chance(self) -> float:
        """p that truncated sampling alone makes as many runs of exact 0 this unlikely to the trainer; 0 without it.

        Where sampling is truncated (min-p keeps a lone candidate at any probability), a certain token's d is log of
        the mass that was kept, like everybody's: the lowest k of all are certain ones with probability share^k.
        """
        blank = self.scored & (self.engine == 0.0)
        real = self.scored & ~blank & ~self.unsampled
        starts, _ = self.unscored_runs
        if not len(starts) or self.null[starts].any() or not real.any() or not self._one_sided(real):
            return 0.0
        certain = int(blank.sum())
        return float((certain / (certain + int(real.sum()))) ** len(starts))

    def _one_sided(self, real: NDArray[np.bool_]) -> bool:
        """Truncated sampling: no real logprob is below the trainer's."""
        d = self.d_all[real]
        return bool((d > self.tolerance[real]).mean() < 0.01 and (d < -self.tolerance[real]).mean() > 0.2)

    @cached_property
    def d_all(self) -> NDArray[np.float64]:
        """[T] d, 0 where a side is missing"""
        with np.errstate(invalid="ignore"):
            d = self.trainer - self.engine
        return np.where(self.both, d, 0.0)

    @cached_property
    def tolerance(self) -> NDArray[np.float64]:
        """[T] what six significant digits and float32 cannot tell apart"""
        scale = np.maximum(np.abs(self.trainer), np.abs(self.engine))
        return 3e-5 + 2e-5 * np.where(np.isfinite(scale), scale, 0.0)

    @cached_property
    def unsampled(self) -> NDArray[np.bool_]:
        """[T] inside one of `unscored_runs`"""
        change = np.zeros(self.batch.tokens + 1, np.int64)
        starts, ends = self.unscored_runs
        np.add.at(change, starts, 1)
        np.add.at(change, ends, -1)
        return np.cumsum(change[:-1]) > 0

    @cached_property
    def clean(self) -> NDArray[np.bool_]:
        """[T] scored, and a logprob of a sampled token as far as the value itself tells.

        Empty where positive values are more than stray ones: then none of them is a logprob.
        """
        if int(self.positive.sum()) > 0.01 * max(1, int(self.scored.sum())):
            return np.zeros(self.batch.tokens, np.bool_)
        return self.scored & ~self.unsampled & ~self.positive & ~self.retokenised

    @cached_property
    def retokenised(self) -> NDArray[np.bool_]:
        """[T] at or after the first position at which the two sides hold different token ids"""
        ours, theirs = self.batch.token_ids, self.batch.engine_token_ids
        if ours is None or theirs is None:
            return np.zeros(self.batch.tokens, np.bool_)
        differs = np.flatnonzero((ours >= 0) & (theirs >= 0) & (ours != theirs))
        first = self.lengths.copy()
        np.minimum.at(first, self.sequence[differs], self.position[differs])
        after: NDArray[np.bool_] = self.position >= first[self.sequence]
        return after

    @cached_property
    def t(self) -> NDArray[np.float64]:
        """[N] trainer logprobs of clean tokens"""
        return self.trainer[self.clean]

    @cached_property
    def s(self) -> NDArray[np.float64]:
        """[N] engine logprobs of clean tokens"""
        return self.engine[self.clean]

    @cached_property
    def d(self) -> NDArray[np.float64]:
        """[N] differences of clean tokens"""
        return self.d_all[self.clean]

    @cached_property
    def of(self) -> NDArray[np.int64]:
        """[N] sequence of clean tokens"""
        return self.sequence[self.clean]

    @cached_property
    def at_step(self) -> NDArray[np.int64]:
        """[N] step of clean tokens"""
        return self.token_step[self.clean]

    @cached_property
    def centred(self) -> NDArray[np.float64] | None:
        """[N] trainer logprob + entropy: mean 0 for tokens drawn from the trainer's distribution. None without H.

        None too where fewer than nine tokens in ten have one.
        """
        if self.batch.entropy is None:
            return None
        x = self.t + self.batch.entropy[self.clean].astype(np.float64)
        if not len(x) or np.isnan(x).mean() > 0.1:
            return None
        return x

    @cached_property
    def off(self) -> NDArray[np.bool_]:
        """[N] |d| beyond what the recording's digits allow"""
        return np.abs(self.d) > self.tolerance[self.clean]

    @cached_property
    def quiet(self) -> bool:
        """The two sides agree to the last recorded digit, nearly everywhere (one token in two hundred may not)."""
        return len(self.d) == 0 or float(self.off.mean()) < 0.005

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """[T] |d| of scored tokens, at most 20 nats each, so that one token does not make the picture"""
        return np.where(self.scored, np.minimum(np.abs(self.d_all), 20.0), 0.0)

    def share(self, chosen: NDArray[np.bool_]) -> float:
        """Which part of all that is wrong lies in the tokens `chosen` [T]."""
        total = float(self.weight.sum())
        return float(self.weight[chosen].sum()) / total if total > 0 else 0.0

    def per_step(self, values: NDArray[np.float64], step: NDArray[np.int64]) -> dict[int, float]:
        """step -> sum of values"""
        known, inverse = np.unique(step, return_inverse=True)
        sums = np.bincount(inverse, values, len(known))
        return {int(k): float(v) for k, v in zip(known, sums, strict=True)}

    def hits_per_step(self, hit: NDArray[np.bool_]) -> dict[int, float]:
        """step -> 1 where one of its sequences [S] is hit, a little less than 0 where none is."""
        counts = self.per_step(hit.astype(np.float64), self.batch.step)
        return {k: 1.0 if v > 0 else -0.01 for k, v in counts.items()}

    def owners(self, tokens: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """[S] sequences with at least one of the tokens [T]."""
        owner = np.zeros(self.batch.sequences, np.bool_)
        owner[self.sequence[tokens]] = True
        return owner
