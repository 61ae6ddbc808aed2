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
from typing import TYPE_CHECKING, Any

import numpy as np

from posttrain_watchdog.consistency.sketch import Sketch
from posttrain_watchdog.model import TokenBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

BOUND = 60.0
"""nats: exp(60) squared is still finite in float64, and no ratio beyond it differs from infinite in practice"""
CHUNK = 1 << 15
"""tokens a chunk: its arrays stay in the second-level cache"""
GPU_CHUNK = 1 << 22
SKETCHED_WHOLE = 1 << 20
"""tokens of a batch up to which every one of them enters the quantiles; of larger ones every fourth"""
CLAMPED_INFINITY = -9000.0
"""vLLM's HTTP server writes -9999.0 for -inf"""

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

    chunk = CHUNK if device == "cpu" else GPU_CHUNK
    stride = 1 if batch.tokens <= SKETCHED_WHOLE else 4
    sums = _chunk_on_cpu if device == "cpu" else _chunk_on_gpu
    for first, last in _spans(batch.offsets, chunk):
        a, b = int(batch.offsets[first]), int(batch.offsets[last])
        bounds = batch.offsets[first : last + 1] - a
        t, s = batch.trainer_logprobs[a:b], batch.engine_logprobs[a:b]
        mask = batch.mask[a:b]
        with np.errstate(invalid="ignore"):
            good = np.isfinite(t + s)
        good &= mask
        if b > a and not float(np.fmin.reduce(s)) > CLAMPED_INFINITY:
            good &= s > CLAMPED_INFINITY
        counted, under = int(np.count_nonzero(good)), int(np.count_nonzero(mask))
        result.masked += under
        if counted < under:
            bad = mask & ~good
            null = batch.engine_null[a:b] if batch.engine_null is not None else np.zeros(b - a, np.bool_)
            missing = int(np.count_nonzero(bad & null))
            result.unscored += missing
            result.non_finite += under - counted - missing
        lengths = np.diff(bounds)
        if counted < b - a:
            lengths = _segment_sums(good, bounds).astype(np.int64)
            t, s = t[good], s[good]
        result.sequence_tokens.append(lengths.astype(np.float64))
        edges = np.concatenate([[0], np.cumsum(lengths)])
        if counted:
            result.tokens += counted
            sums(torch, result, t, s, edges=edges, log_cap=math.log(cap), stride=stride, device=device)
        else:
            for into in (result.sequence_d, result.sequence_ratio, result.sequence_reverse):
                into.append(np.zeros(len(lengths)))
    return result


def _chunk_on_cpu(
    torch: Any,
    result: Ratios,
    t: Floats,
    s: Floats,
    *,
    edges: NDArray[np.int64],
    log_cap: float,
    stride: int,
    device: str,
) -> None:
    """Adds one chunk. Every temporary is a chunk long; sums that cancel are taken in float64."""
    d = torch.from_numpy(np.subtract(t, s)).clamp_(-BOUND, BOUND)
    less_1 = torch.expm1(d)
    ratio = less_1 + 1.0
    reverse = torch.exp(-d)  # 1 / ratio would divide by what expm1 has rounded away
    low, high = (float(v) for v in torch.aminmax(d))
    wide = torch.float64
    # beyond 2^63 in the square float32 would overflow
    square = torch.dot(ratio, ratio) if high < 40.0 else (ratio.double() ** 2).sum()
    result.sums += np.array(
        [
            float(d.sum(dtype=wide)),
            float(d.abs().sum()),
            float(torch.dot(d, d)),
            float(less_1.sum(dtype=wide)),
            float(square),
            float(reverse.sum(dtype=wide)),
            float((less_1 - d).sum(dtype=wide)),
            float(t.sum(dtype=np.float64)),
            float(s.sum(dtype=np.float64)),
            float(np.dot(t, t)),
            float(np.dot(s, s)),
            float(np.dot(t, s)),
        ]
    )
    if high > log_cap:
        result.over_cap += int(torch.count_nonzero(d > log_cap))
    result.low, result.high = min(result.low, low), max(result.high, high)
    result.sketch.feed(d.numpy()[::stride])
    result.sequence_d.append(_segment_sums(d.numpy(), edges))
    result.sequence_ratio.append(_segment_sums(ratio.numpy(), edges))
    result.sequence_reverse.append(_segment_sums(reverse.numpy(), edges))


def _chunk_on_gpu(
    torch: Any,
    result: Ratios,
    t: Floats,
    s: Floats,
    *,
    edges: NDArray[np.int64],
    log_cap: float,
    stride: int,
    device: str,
) -> None:
    """The same on a GPU: one copy over, float64 sums there, one copy of the sums back."""
    t_, s_ = (torch.from_numpy(np.ascontiguousarray(x)).to(device, non_blocking=True) for x in (t, s))
    d = (t_ - s_).clamp_(-BOUND, BOUND)
    less_1 = torch.expm1(d)
    ratio = less_1 + 1.0
    reverse = torch.exp(-d)  # 1 / ratio would divide by what expm1 has rounded away
    wide = torch.float64
    over = torch.count_nonzero(d > log_cap)
    values = torch.stack(
        [
            d.sum(dtype=wide),
            d.abs().sum(dtype=wide),
            d.square().sum(dtype=wide),
            less_1.sum(dtype=wide),
            ratio.double().square().sum(),
            reverse.sum(dtype=wide),
            (less_1 - d).sum(dtype=wide),
            t_.sum(dtype=wide),
            s_.sum(dtype=wide),
            t_.square().sum(dtype=wide),
            s_.square().sum(dtype=wide),
            (t_ * s_).sum(dtype=wide),
            d.min().double(),
            d.max().double(),
            over.double(),
        ]
    ).cpu()
    result.sums += values[: len(SUMS)].numpy()
    low, high, beyond = (float(v) for v in values[len(SUMS) :])
    result.low, result.high = min(result.low, low), max(result.high, high)
    result.over_cap += int(beyond)
    result.sketch.feed(d[::stride].cpu().numpy())
    where = torch.from_numpy(edges).to(device)
    for into, x in ((result.sequence_d, d), (result.sequence_ratio, ratio), (result.sequence_reverse, reverse)):
        reached = torch.cat([torch.zeros(1, dtype=wide, device=device), x.cumsum(0, dtype=wide)])
        into.append(reached[where].diff().cpu().numpy())


def _segment_sums(values: NDArray[Any], edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sums of values[edges[i]:edges[i+1]] in float64; 0 for empty segments."""
    sums = np.zeros(len(edges) - 1)
    full = edges[1:] > edges[:-1]
    if full.any():
        # empty segments left out, each remaining one ends where the next begins
        sums[full] = np.add.reduceat(values, edges[:-1][full], dtype=np.float64)
    return sums


def _spans(offsets: NDArray[np.int64], chunk: int) -> list[tuple[int, int]]:
    """Runs of whole sequences of about `chunk` tokens: (first, last + 1)."""
    spans, first, n = [], 0, len(offsets) - 1
    while first < n:
        last = int(np.searchsorted(offsets, offsets[first] + chunk, side="right")) - 1
        last = min(n, max(last, first + 1))
        spans.append((first, last))
        first = last
    return spans
