"""What recording costs inside the trainer, and the disk it takes. One process.

python benchmarks/recorder.py [--sequences 64] [--length 2048]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from posttrain_watchdog.recorder import Recorder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--length", type=int, default=2048)
    arguments = parser.parse_args()
    shape = (arguments.sequences, arguments.length)
    random = np.random.default_rng(0)
    trainer = -random.exponential(0.4, shape).astype(np.float32)
    engine = trainer + random.normal(0, 0.01, shape).astype(np.float32)
    batch = {
        "engine_logprobs": engine,
        "trainer_logprobs": trainer,
        "mask": np.ones(shape, np.int64),
        "token_ids": random.integers(0, 150_000, shape),
        "entropy": np.abs(trainer),
    }
    tokens = shape[0] * shape[1]
    for fraction in (1.0, 0.1):
        with tempfile.TemporaryDirectory() as folder:
            recorder = Recorder(folder, fraction=fraction, max_bytes=1 << 30)
            times = []
            for step in range(5):
                start = time.perf_counter()
                recorder.record(step=step, **batch)
                times.append(time.perf_counter() - start)
            size = sum(p.stat().st_size for p in Path(folder).iterdir())
        print(
            json.dumps(
                {
                    "fraction": fraction,
                    "tokens_a_step": tokens,
                    "seconds_a_step": round(min(times), 4),
                    "microseconds_a_token": round(1e6 * min(times) / tokens, 3),
                    "bytes_a_recorded_token": round(size / (recorder.written * shape[1]), 1),
                }
            )
        )


if __name__ == "__main__":
    main()
