"""What endpoints of several engines and generations show, under one name."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from conftest import ROOT

from posttrain_watchdog.model import Metric
from posttrain_watchdog.sources.engines.metrics import MetricsReader, ScrapeLog, canonical, recognises, samples
from posttrain_watchdog.sources.engines.names import TABLES
from posttrain_watchdog.vocabulary import METRICS
from posttrain_watchdog.vocabulary.engine import PREFIX

DATA = ROOT / "tests" / "data" / "engines"


def read(name: str) -> dict[str, float]:
    return {repr(m).removeprefix(PREFIX): v for m, v in MetricsReader().read((DATA / name).read_text()).values.items()}


def test_an_old_vllm_has_the_names_of_a_new_one() -> None:
    old = read("vllm_0.8.5.txt")
    assert old['kv_cache_usage_ratio{engine="0"}'] == 0.25
    assert old['inter_token_seconds_bucket{engine="0",le="0.025"}'] == 950
    assert old['seconds_per_token{engine="0"}'] == pytest.approx(0.012)
    assert not any("iteration" in name or "created" in name for name in old)


def test_what_ray_exports_twice_counts_once_and_workers_stay_apart() -> None:
    ray = read("vllm_under_ray.txt")
    assert ray['generation_tokens_total{engine="0",replica="w1"}'] == 500
    assert ray['generation_tokens_total{engine="0",replica="w2"}'] == 40
    assert ray['kv_cache_usage_ratio{engine="0",replica="w1"}'] == 0.5
    assert ray['inter_token_seconds_bucket{engine="0",le="0.025",replica="w1"}'] == 9


def test_sglang_ranks_that_say_the_same_count_once() -> None:
    sglang = read("sglang_0.5.txt")
    assert sglang['requests_running{engine="0"}'] == 12
    assert sglang['preemptions_total{engine="0"}'] == 5
    assert sglang['seconds_per_token{engine="0"}'] == pytest.approx(0.03)


def test_the_newer_of_two_generations_is_read() -> None:
    text = (DATA / "vllm_0.8.5.txt").read_text() + 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.75\n'
    assert canonical(samples(text))[Metric(PREFIX + "kv_cache_usage_ratio", {"engine": "0"})] == 0.75


def test_two_models_behind_one_engine_add_up() -> None:
    text = 'vllm:generation_tokens_total{model_name="a"} 5\nvllm:generation_tokens_total{model_name="b"} 7\n'
    assert list(canonical(samples(text)).values()) == [12]


def test_latency_is_that_since_the_last_reading() -> None:
    reader = MetricsReader({"source": "e"})
    name = Metric(PREFIX + "seconds_per_token", {"engine": "0", "source": "e"})

    def line(total: float, count: int) -> str:
        return f"vllm:inter_token_latency_seconds_sum {total}\nvllm:inter_token_latency_seconds_count {count}\n"

    assert reader.read(line(1.0, 100)).values[name] == pytest.approx(0.01)
    assert reader.read(line(3.0, 200)).values[name] == pytest.approx(0.02)
    assert math.isnan(reader.read(line(3.0, 200)).values[name]), "idle"
    assert reader.read(line(0.5, 10)).values[name] == pytest.approx(0.05), "the engine restarted"


def test_hostile_lines_are_skipped() -> None:
    text = 'vllm:num_requests_running{engine="0} 3\nvllm:\nvllm:num_requests_running{engine="0"} abc\nvllm:x{ 1\n'
    text += 'vllm:num_requests_waiting{engine="a\\"b\\\\n"} 4 # {trace="x"} 1\n'
    assert canonical(samples(text)) == {Metric(PREFIX + "requests_waiting", {"engine": 'a"b\\n'}): 4}


def test_every_canonical_name_is_in_the_vocabulary() -> None:
    assert {PREFIX + short for table in TABLES.values() for short in table} <= set(METRICS)


def test_other_programs_are_not_engines() -> None:
    assert not recognises("# TYPE up gauge\nup 1\npython_info 1\n")
    assert recognises((DATA / "sglang_0.5.txt").read_text())


def test_recorded_scrapes_of_a_server(recordings: Path) -> None:
    lines = (recordings / "server-mode-processed" / "metrics_scrapes.jsonl").read_bytes().splitlines()
    rows = list(ScrapeLog().feed([b"not json", b"{}", *lines]))
    assert len(rows) == len(lines)
    tokens = [r.values[Metric(PREFIX + "generation_tokens_total", {"engine": "0"})] for r in rows]
    assert tokens == sorted(tokens) and tokens[-1] > tokens[0]
    times = [r.time for r in rows]
    assert None not in times and times == sorted(times)  # type: ignore[type-var]


def test_a_recorded_endpoint_gives_whole_histograms(recordings: Path) -> None:
    for path in sorted(recordings.glob("vllm-*/metrics.txt")):
        values = canonical(samples(path.read_text()))
        counts = {m: v for m, v in values.items() if m.name.endswith("_count")}
        assert len(counts) >= 8
        for metric, count in counts.items():
            base = metric.name.removesuffix("_count")
            top = values[Metric(base + "_bucket", {**dict(metric.labels), "le": "+Inf"})]
            assert top == count and Metric(base + "_sum", metric.labels) in values


def test_throughput_is_that_since_the_last_reading() -> None:
    reader = MetricsReader()
    name = Metric(PREFIX + "tokens_per_second", {"engine": "0"})
    readings = [(100, 0.0), (300, 10.0), (5, 20.0), (25, 30.0)]
    rows = [reader.read(f"vllm:generation_tokens_total {n}\n", time) for n, time in readings]
    assert [r.values.get(name) for r in rows] == [None, 20.0, None, 2.0], "none across a restart"
