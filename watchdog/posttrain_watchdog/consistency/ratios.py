"""Importance ratios and KL estimates of one batch: everything in one pass over cache-sized chunks.

Promises: nothing overflows (d is bounded at +-BOUND before exp; what is cut is counted); sums are kept in float64;
extra memory does not grow with the batch; the same code runs on a GPU. Imports torch only when called. Never looks
at a token that does not count or that a side does not score.

d = trainer logprob - engine logprob. Estimators of KL(engine || trainer): k1 = mean(-d), k2 = mean(d^2)/2,
k3 = mean(exp(d) - 1 - d) (Schulman, Approximating KL Divergence, 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.sketch import Sketch
from posttrain_watchdog.model import TokenBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

BOUND = 60.0
"""nats: exp(60) squared is still finite in float64, and no ratio beyond it differs from infinite in practice"""
CHUNK = 1 << 15
"""tokens a chunk: its arrays stay in the second-level cache"""

SUMS = (
    "d",
    "abs",
    "square",
    "ratio_less_1",
    "ratio_square",
    "reverse",
    "k3",
    "trainer",
    "engine",
    "trainer_square",
    "engine_square",
    "trainer_engine",
)


@dataclass(slots=True)
class Ratios:
    """Sums over the tokens that both sides score; several batches of one step add up with `add`."""

    tokens: int = 0
    unscored: int = 0
    """under the mask, without a number from the engine"""
    non_finite: int = 0
    """under the mask, NaN or infinite on a side"""
    masked: int = 0
    """tokens under the mask"""
    over_cap: int = 0
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(SUMS)))
    low: float = math.inf
    """smallest d"""
    high: float = -math.inf
    """largest d"""
    sketch: Sketch = field(default_factory=Sketch)
    sequence_d: list[NDArray[np.float64]] = field(default_factory=list)
    """sum of d of each sequence"""
    sequence_ratio: list[NDArray[np.float64]] = field(default_factory=list)
    """sum of exp(d) of each sequence"""
    sequence_reverse: list[NDArray[np.float64]] = field(default_factory=list)
    """sum of exp(-d) of each sequence"""
    sequence_tokens: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, other: Ratios) -> None:
        self.tokens += other.tokens
        self.unscored += other.unscored
        self.non_finite += other.non_finite
        self.masked += other.masked
        self.over_cap += other.over_cap
        self.sums += other.sums
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)
        self.sketch.add(other.sketch)
        self.sequence_d += other.sequence_d
        self.sequence_ratio += other.sequence_ratio
        self.sequence_reverse += other.sequence_reverse
        self.sequence_tokens += other.sequence_tokens

    def total(self, name: str) -> float:
        return float(self.sums[SUMS.index(name)])

    def mean(self, name: str) -> float:
        return self.total(name) / self.tokens if self.tokens else math.nan

    @property
    def ratio_mean(self) -> float:
        return 1.0 + self.mean("ratio_less_1")

    @property
    def effective_fraction(self) -> float:
        """(sum w)^2 / (n sum w^2)"""
        square = self.total("ratio_square")
        return (self.tokens + self.total("ratio_less_1")) ** 2 / (self.tokens * square) if square > 0 else math.nan

    @property
    def correlation(self) -> float:
        n = max(1, self.tokens)
        t, s = self.total("trainer"), self.total("engine")
        st = self.total("trainer_engine") - s * t / n
        tt = self.total("trainer_square") - t * t / n
        ss = self.total("engine_square") - s * s / n
        return st / math.sqrt(tt * ss) if tt > 0 and ss > 0 else math.nan

    def standard_error(self, per_sequence: list[NDArray[np.float64]], mean: float) -> float:
        """Of a mean over tokens, with sequences as the independent units; NaN below two of them."""
        counts = np.concatenate(self.sequence_tokens) if self.sequence_tokens else np.zeros(0)
        used = counts > 0
        k = int(used.sum())
        if k < 2:
            return math.nan
        residual = np.concatenate(per_sequence)[used] - mean * counts[used]
        return float(np.sqrt((residual**2).sum() * k / (k - 1)) / counts.sum())


def measure(batch: TokenBatch, cap: float = 10.0, device: str = "cpu") -> Ratios:
    """All sums of one batch.

    Args: cap, the importance ratio above which a token is counted as over it; device, a torch device.
    """
    result = Ratios()
    if batch.tokens == 0:
        return result
    import torch

    engine, trainer = batch.engine_logprobs, batch.trainer_logprobs
    for first, last in _spans(batch.offsets):
        a, b = int(batch.offsets[first]), int(batch.offsets[last])
        mask = batch.mask[a:b]
        s, t = engine[a:b], trainer[a:b]
        good = mask & np.isfinite(s) & np.isfinite(t) & (s > -9000.0)
        counted = int(good.sum())
        under = int(mask.sum())
        result.masked += under
        if counted < under:
            bad = mask & ~good
            null = batch.engine_null[a:b] if batch.engine_null is not None else np.zeros(b - a, np.bool_)
            result.unscored += int((bad & null).sum())
            result.non_finite += int((bad & ~null).sum())
        bounds = batch.offsets[first : last + 1] - a
        lengths = np.add.reduceat(np.concatenate([good, [False]]), bounds[:-1], dtype=np.int64)
        lengths = np.where(np.diff(bounds) > 0, lengths, 0)
        result.sequence_tokens.append(lengths.astype(np.float64))
        if counted == 0:
            zero = np.zeros(len(lengths))
            result.sequence_d.append(zero)
            result.sequence_ratio.append(zero)
            result.sequence_reverse.append(zero)
            continue
        place = torch.device(device)
        s_, t_ = (torch.from_numpy(x[good]).to(place) for x in (s, t))
        d = torch.sub(t_, s_).clamp_(-BOUND, BOUND)
        less_1 = torch.expm1(d.double())
        ratio = less_1 + 1.0
        reverse = 1.0 / ratio
        wide = d.double()
        values = (
            wide.sum(),
            wide.abs().sum(),
            (wide * wide).sum(),
            less_1.sum(),
            (ratio * ratio).sum(),
            reverse.sum(),
            (less_1 - wide).sum(),
            t_.double().sum(),
            s_.double().sum(),
            (t_.double() ** 2).sum(),
            (s_.double() ** 2).sum(),
            (t_.double() * s_.double()).sum(),
        )
        result.sums += np.array([float(v) for v in values])
        result.tokens += counted
        result.over_cap += int((d > math.log(cap)).sum())
        result.low, result.high = min(result.low, float(d.min())), max(result.high, float(d.max()))
        result.sketch.feed(d.cpu().numpy())
        edges = np.concatenate([[0], np.cumsum(lengths)])
        for into, x in (
            (result.sequence_d, wide),
            (result.sequence_ratio, ratio),
            (result.sequence_reverse, reverse),
        ):
            sums = np.concatenate([[0.0], np.cumsum(x.cpu().numpy())])
            into.append(np.diff(sums[edges]))
    return result


def _spans(offsets: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Runs of whole sequences of about CHUNK tokens: (first, last + 1)."""
    spans, first, n = [], 0, len(offsets) - 1
    while first < n:
        last = int(np.searchsorted(offsets, offsets[first] + CHUNK, side="right")) - 1
        last = min(n, max(last, first + 1))
        spans.append((first, last))
        first = last
    return spans
