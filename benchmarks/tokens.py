"""What looking at every token costs, beside what a trainer spends on its own five numbers. One thread.

    python benchmarks/tokens.py [--tokens 8000000]

(a) is TRL 1.16.0's arithmetic for its five logged numbers (mean and max of |d|; min, mean and max of the truncated
ratio), re-implemented from grpo_trainer.py; (b) plain torch passes for what measure() gives.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable

import numpy as np
import orjson
import torch

from posttrain_watchdog.consistency.monitor import Monitor
from posttrain_watchdog.consistency.ratios import measure
from posttrain_watchdog.model import TokenBatch
from posttrain_watchdog.sources.tokens import native


def best(*works: Callable[[], object], repeats: int = 7) -> list[float]:
    """Shortest run of each, in seconds, taken in turns: what else the machine does hits all of them alike."""
    times = [float("inf")] * len(works)
    for _ in range(repeats):
        for i, work in enumerate(works):
            start = time.perf_counter()
            work()
            times[i] = min(times[i], time.perf_counter() - start)
    return times


def batch_of(trainer: np.ndarray, engine: np.ndarray, mask: np.ndarray, length: int) -> TokenBatch:
    return TokenBatch(
        offsets=np.arange(0, len(engine) + 1, length, dtype=np.int64),
        engine_logprobs=engine,
        trainer_logprobs=trainer,
        mask=mask,
        step=np.zeros(len(engine) // length, np.int64),
    )


def five_numbers(trainer: torch.Tensor, engine: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
    delta = torch.abs(engine - trainer)[mask]
    ratio = torch.clamp(torch.exp(trainer - engine), max=10.0)
    flat = ratio[mask]
    return delta.mean(), delta.max(), flat.min(), flat.mean(), flat.max()


def plain_passes(trainer: torch.Tensor, engine: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
    t, s = trainer[mask], engine[mask]
    d = t - s
    ratio = torch.exp(d)
    counts = mask.sum(1)
    by_row = [(torch.where(mask, x, 0.0)).sum(1) for x in (trainer - engine, torch.exp(trainer - engine))]
    quantiles = torch.quantile(d[::8][:1_000_000], torch.tensor([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]))
    return [
        d.mean(),
        d.abs().mean(),
        d.abs().max(),
        (d * d).mean() / 2,
        (ratio - 1 - d).mean(),
        ratio.mean(),
        ratio.min(),
        ratio.max(),
        (1 / ratio).mean(),
        ratio.sum() ** 2 / (ratio * ratio).sum(),
        (ratio > 10).float().mean(),
        torch.corrcoef(torch.stack([t, s]))[0, 1],
        *by_row,
        counts,
        quantiles,
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=8_000_000)
    tokens = parser.parse_args().tokens
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    length = 1000
    rows = tokens // length
    trainer = (-rng.exponential(0.8, rows * length)).astype(np.float32)
    engine = np.minimum(trainer + rng.normal(0, 0.02, len(trainer)).astype(np.float32) * (0.05 - trainer), 0)
    padded = (np.arange(length) < rng.integers(200, length + 1, rows)[:, None]).ravel()
    t2, s2 = (torch.from_numpy(x).view(rows, length) for x in (trainer, engine))
    whole = np.ones(len(trainer), np.bool_)
    measure(batch_of(trainer[:length], engine[:length], whole[:length], length))
    for name, mask in (("ragged, every token counts", whole), ("padded, 60 % of positions count", padded)):
        m2 = torch.from_numpy(mask).view(rows, length)
        batch = batch_of(trainer, engine, mask, length)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        measure(batch)
        extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        ours, judged, five, plain = best(
            lambda: measure(batch),  # noqa: B023
            lambda: _judged(batch),  # noqa: B023
            lambda: five_numbers(t2, s2, m2),  # noqa: B023
            lambda: plain_passes(t2, s2, m2),  # noqa: B023
        )
        print(f"{name}: {len(trainer) / 1e6:.0f} M positions, {mask.sum() / 1e6:.1f} M tokens")
        for what, seconds in (
            ("measure(): ratios, KLs, quantiles, per sequence", ours),
            ("Monitor: measure() and every cause judged", judged),
            ("(a) TRL's five numbers", five),
            ("(b) plain torch passes", plain),
        ):
            print(f"  {what:50} {len(trainer) / seconds / 1e6:7.1f} M positions/s  {five / seconds:5.2f} x (a)")
        print(f"  extra peak memory of measure(): {extra:.0f} MiB")
    reading(rng)
    print("GPU:", _gpu(trainer, engine, whole, length) if torch.cuda.is_available() else "none at hand, not measured")


def _judged(batch: TokenBatch) -> object:
    monitor = Monitor()
    monitor.observe(batch)
    monitor.flush()
    return monitor.diagnoses()


def reading(rng: np.random.Generator) -> None:
    lines = []
    for i in range(400):
        n = int(rng.integers(200, 1000))
        t = -rng.exponential(0.8, n)
        record = {
            "step": i // 8,
            "token_ids": rng.integers(0, 150000, n).tolist(),
            "mask": [1] * n,
            "engine_logprobs": [float(f"{v:.6g}") for v in t],
            "trainer_logprobs": [float(f"{v:.6g}") for v in t],
        }
        lines.append(json.dumps(record).encode())
    size = sum(map(len, lines)) / 1e6
    alone, ours = best(lambda: [orjson.loads(line) for line in lines], lambda: native.read(lines), repeats=15)
    print(f"reading JSONL: {size / ours:.0f} MB/s, orjson.loads alone {size / alone:.0f} MB/s: {alone / ours:.0%}")


def _gpu(trainer: np.ndarray, engine: np.ndarray, mask: np.ndarray, length: int) -> str:
    batch = batch_of(trainer, engine, mask, length)
    measure(batch, device="cuda:0")
    seconds, copy = best(
        lambda: measure(batch, device="cuda:0"),
        lambda: (torch.from_numpy(trainer).to("cuda:0"), torch.from_numpy(engine).to("cuda:0")),
    )
    return f"{len(trainer) / seconds / 1e6:.0f} M tokens/s, {copy / seconds:.0%} of the copy to the device alone"


if __name__ == "__main__":
    main()
