"""How long one evaluation of a set of rules takes: this engine beside a live Prometheus, same series, same rules.

`python benchmarks/rules.py [--quick]` prints a table; the figures of one run come from one machine at one time.
Prometheus gets the samples into its head (they reach past the present), evaluates the group every second and
reports `prometheus_rule_group_last_duration_seconds`. Ours appends a tick and evaluates every rule at it, as the
daemon does. Every rule reads all series, and no two have the same threshold and window. Without `prometheus`
installed its columns stay empty.
"""

from __future__ import annotations

import argparse
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from promql.remote_write import write

from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql import Engine
from posttrain_watchdog.series.store import Store

INTERVAL = 15.0
BEFORE, AFTER = 40, 60
"""ticks before and after the present"""
MIXED = (
    "load > {high}",
    "rate(load[{window}s]) > {high}",
    "avg_over_time(load[{window}s]) > {high}",
    "max_over_time(load[{window}s]) - min_over_time(load[{window}s]) > {high}",
    "sum by (host) (load) > {high}",
    "load > on (host, rank) (load offset {window}s) + {high}",
    'load{{engine!="none"}} / 3 > {high} and load < {high}',
    "quantile_over_time(0.9, load[{window}s]) > {high}",
    "max by (engine) (increase(load[{window}s])) > {high}",
    "abs(load - scalar(avg(load))) > {high}",
)


def rules(count: int, plain: bool) -> list[str]:
    """Expressions that never hold, no two alike."""
    kinds = MIXED[:1] if plain else MIXED
    return [kinds[i % len(kinds)].format(high=1e6 + i, window=60 + 7 * i % 241) for i in range(count)]


def series(count: int) -> list[Metric]:
    return [
        Metric("load", {"host": f"node{i // 8:04d}", "rank": str(i % 8), "engine": ("vllm", "sglang")[i // 8 % 2]})
        for i in range(count)
    ]


def samples(count: int, ticks: int) -> np.ndarray:
    """[ticks, count] rising values, with a fall in one cell of a hundred."""
    draw = np.random.default_rng(1)
    steps = draw.uniform(0, 5, size=(ticks, count)) - 20 * (draw.random((ticks, count)) < 0.01)
    return np.round(1000 + np.cumsum(steps, axis=0), 3)


def ours(metrics: list[Metric], values: np.ndarray, start: float, expressions: list[str]) -> tuple[float, float]:
    """(median ms an evaluation, median ms an append)"""
    store = Store()
    engine = Engine(store)
    queries = [engine.prepare(expression) for expression in expressions]
    took, wrote = [], []
    for i, row in enumerate(values):
        begin = time.perf_counter()
        store.append(start + i * INTERVAL, metrics, row, writer="bench")
        wrote.append(time.perf_counter() - begin)
        if i < BEFORE:
            continue
        begin = time.perf_counter()
        for query in queries:
            query.instant(start + i * INTERVAL)
        took.append(time.perf_counter() - begin)
        if sum(took) > 20:
            break
    return 1000 * statistics.median(took[1:] or took), 1000 * statistics.median(wrote)


def evaluate(metrics: list[Metric], values: np.ndarray, start: float, expressions: list[str], rounds: int) -> float:
    """Median ms an evaluation of a live Prometheus that holds the samples in its head, as after scraping them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = ["groups:\n- name: bench\n  interval: 1s\n  rules:"]
        text += [f"  - alert: A{i}\n    expr: '{e}'\n    for: 5m" for i, e in enumerate(expressions)]
        (folder / "rules.yml").write_text("\n".join(text) + "\n")
        (folder / "prometheus.yml").write_text("rule_files: [rules.yml]\n")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        command = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            "--web.enable-remote-write-receiver",
        ]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                for line in process.stderr:
                    if "Server is ready" in line:
                        break
                times = [start + i * INTERVAL for i in range(len(values))]
                write(f"http://{address}", ((m, times, values[:, j].tolist()) for j, m in enumerate(metrics)))
                return watch(f"http://{address}/metrics", rounds, time.time())
            finally:
                process.terminate()


def watch(url: str, rounds: int, since: float) -> float:
    """Median of the evaluations that began after `since`."""
    seen: list[float] = []
    last = since
    deadline = time.monotonic() + 240
    while len(seen) < rounds and time.monotonic() < deadline:
        time.sleep(0.2)
        with urllib.request.urlopen(url, timeout=30) as answer:
            page = answer.read().decode()
        began = re.search(r"^prometheus_rule_group_last_evaluation_timestamp_seconds\S* (\S+)", page, re.M)
        took = re.search(r"^prometheus_rule_group_last_duration_seconds\S* (\S+)", page, re.M)
        if began and took and float(began.group(1)) > last:
            last = float(began.group(1))
            seen.append(1000 * float(took.group(1)))
    return statistics.median(seen) if seen else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1,000 series and fewer rounds")
    parser.add_argument("--ours", action="store_true", help="without Prometheus")
    options = parser.parse_args()
    peer = shutil.which("prometheus") is not None and not options.ours
    sets = {f"{count} {kind}": rules(count, kind == "plain") for count in (50, 500) for kind in ("plain", "mixed")}
    print(f"{'series':>7} {'rules':>10} {'ours ms':>9} {'Prometheus ms':>14} {'times faster':>13} {'append ms':>10}")
    for count in (1_000,) if options.quick else (1_000, 10_000):
        start = round(time.time()) - BEFORE * INTERVAL
        metrics, values = series(count), samples(count, BEFORE + AFTER)
        for name, expressions in sets.items():
            took, wrote = ours(metrics, values, start, expressions)
            other = evaluate(metrics, values, start, expressions, 2 if options.quick else 3) if peer else None
            columns = f"{other:>14.1f} {other / took:>13.1f}" if other is not None else f"{'':>14} {'':>13}"
            print(f"{count:>7} {name:>10} {took:>9.2f} {columns} {wrote:>10.3f}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
