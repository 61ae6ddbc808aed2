"""How fast token dumps in JSON lines become arrays, beside orjson.loads alone on the same bytes. One process.

python benchmarks/dumps.py [--length 1024]
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence

import orjson

from posttrain_watchdog.sources.tokens import native, nemo_rl, prime_rl

SEQUENCES = 256


def best(work: Callable[[], object], repeats: int = 7) -> float:
    """Shortest of some runs, in seconds: other processes of the machine only ever add."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def logprobs(count: int) -> list[float]:
    return [round(-random.expovariate(2), 6) for _ in range(count)]


def ids(count: int) -> list[int]:
    return [random.randrange(150_000) for _ in range(count)]


def recorded(n: int) -> dict[str, object]:
    return {
        "step": 1,
        "token_ids": ids(n),
        "mask": [1] * n,
        "engine_logprobs": logprobs(n),
        "trainer_logprobs": logprobs(n),
    }


def nemo(n: int) -> dict[str, object]:
    prompt, rest = n // 10, n - n // 10
    return {
        "token_ids": [ids(n)],
        "token_loss_mask": [[0] * prompt + [1] * rest],
        "sample_loss_mask": [1.0],
        "generation_logprobs": [[0.0] * prompt + logprobs(rest)],
        "prev_logprobs": [logprobs(n)],
        "input_lengths": [n],
        "idx": 0,
    }


def prime(n: int) -> dict[str, object]:
    prompt, rest = n // 10, n - n // 10
    return {
        "step": 1,
        "rank": 0,
        "token_ids": ids(n),
        "loss_mask": [False] * prompt + [True] * rest,
        "inference_logprobs": [0.0] * prompt + logprobs(rest),
        "trainer_logprobs": logprobs(n),
        "entropy": logprobs(n),
        "rl_weights": [None] * n,
    }


def measure(name: str, lines: Sequence[bytes], read: Callable[[Sequence[bytes]], object]) -> None:
    megabytes = sum(map(len, lines)) / 1e6
    alone = best(lambda: [orjson.loads(line) for line in lines])
    whole = best(lambda: read(lines))
    print(
        json.dumps(
            {
                "dump": name,
                "orjson_MB_s": round(megabytes / alone),
                "read_MB_s": round(megabytes / whole),
                "share_of_orjson": round(alone / whole, 2),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=1024)
    length = parser.parse_args().length
    random.seed(0)
    for name, make, read in (
        ("native", recorded, native.read),
        ("nemo_rl", nemo, nemo_rl.read),
        ("prime_rl", prime, prime_rl.read),
    ):
        measure(name, [json.dumps(make(length)).encode() for _ in range(SEQUENCES)], read)


if __name__ == "__main__":
    main()
