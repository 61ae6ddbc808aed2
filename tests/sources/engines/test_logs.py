"""Engine logs as engines print them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from posttrain_watchdog.model import Event, Metric, Row
from posttrain_watchdog.sources.engines import sglang, vllm
from posttrain_watchdog.sources.failure_lines import FailureLines
from posttrain_watchdog.vocabulary import EVENTS
from posttrain_watchdog.vocabulary.engine import PREFIX


def play(dialect: vllm.Dialect | sglang.Dialect, lines: Iterable[str]) -> list[Row | Event]:
    return [item for line in lines for item in dialect.feed(line)] + list(dialect.close())


def events(items: list[Row | Event]) -> list[Event]:
    return [i for i in items if isinstance(i, Event)]


def last(items: list[Row | Event], short: str) -> float:
    found = [v for i in items if isinstance(i, Row) for m, v in i.values.items() if m.name == PREFIX + short]
    return found[-1]


HEAD = "(APIServer pid=1) INFO 11-30 12:00:00 [api_utils.py:286] "
CORE = "(EngineCore pid=2) INFO 11-30 12:00:01 [core.py:129] "


@pytest.mark.parametrize(
    ("recording", "mode"),
    [
        ("vllm-raw_logprobs", "raw_logprobs"),
        ("vllm-raw_logits", "raw_logits"),
        ("vllm-processed_logprobs", "processed_logprobs"),
        ("server-mode-processed", "processed_logprobs"),
    ],
)
def test_a_recorded_start_says_the_logprobs_mode(recordings: Path, recording: str, mode: str) -> None:
    lines = (recordings / recording / "server.log").read_text().splitlines()
    assert any(vllm.recognises(line) for line in lines[:20])
    assert not any(sglang.recognises(line) for line in lines)
    (start,) = [e for e in events(play(vllm.Dialect(2026), lines)) if e.kind == "engine_started"]
    assert start.labels["logprobs_mode"] == mode
    assert start.labels["version"] == "0.31.0"
    assert start.labels["dtype"] == "float32"
    assert start.time is not None


def test_a_recorded_server_syncs_weights_and_ends_in_peace(recordings: Path) -> None:
    items = play(vllm.Dialect(), (recordings / "server-mode-processed" / "server.log").read_text().splitlines())
    kinds = Counter(e.kind for e in events(items))
    assert kinds["weights_synced"] == kinds["prefix_cache_reset"] == 60
    assert not kinds["engine_died"] and not kinds["engine_request_failed"]
    assert all(i.time is None for i in items), "no year, no time"
    assert (
        max(
            v
            for i in items
            if isinstance(i, Row)
            for m, v in i.values.items()
            if m.name == PREFIX + "generation_tokens_per_second"
        )
        > 600
    )


def test_a_recorded_crash_is_one_death(recordings: Path) -> None:
    items = play(vllm.Dialect(), (recordings / "vllm-engine-crash" / "server.log").read_text().splitlines())
    kinds = Counter(e.kind for e in events(items))
    assert kinds["engine_died"] == 1
    assert kinds["engine_request_failed"] == 2
    assert set(kinds) <= set(EVENTS)


def test_arguments_that_never_were_printed_say_nothing_of_the_mode() -> None:
    line = CORE + "Initializing a V1 LLM engine (v0.10.1) with config: model='m', dtype=torch.bfloat16, seed=0"
    (start,) = events(play(vllm.Dialect(), [line]))
    assert "logprobs_mode" not in start.labels
    assert start.labels["dtype"] == "bfloat16"


def test_an_old_engine_prints_a_namespace() -> None:
    lines = [
        "INFO 04-30 12:00:00 [api_server.py:1034] vLLM API server version 0.8.5",
        "INFO 04-30 12:00:00 [api_server.py:1035] args: Namespace(subparser='serve', port=8000, max_logprobs=20)",
        "INFO 04-30 12:00:00 [core.py:58] Initializing a V1 LLM engine (v0.8.5) with config: model='m', "
        "dtype=torch.float16, quantization=None",
    ]
    (start,) = events(play(vllm.Dialect(2025), lines))
    assert start.labels["logprobs_mode"] == "raw_logprobs"
    assert start.labels["max_logprobs"] == "20"
    assert "quantization" not in start.labels


def test_arguments_that_are_no_literal_are_still_read() -> None:
    given = "{'model': 'm', 'logprobs_mode': 'raw_logits', 'x': <Enum.A: 1>, 'max_logprobs': 7}"
    read = vllm.arguments(given)
    assert read["logprobs_mode"] == "raw_logits" and read["max_logprobs"] == "7"


def test_a_year_ends_while_the_engine_runs() -> None:
    line = "INFO {} 00:00:10 [loggers.py:1] Engine 001: Avg generation throughput: 5.0 tokens/s, Running: 1 reqs"
    items = play(vllm.Dialect(2026), [line.format("12-31"), line.format("01-01")])
    times = [i.time for i in items]
    assert times[1] is not None and times[0] is not None and times[1] - times[0] == 86400


def test_a_stats_line_under_ray_names_its_replica() -> None:
    line = (
        "\x1b[36m(vLLMHttpServer pid=77)\x1b[0m INFO 12-01 09:02:44 [loggers.py:320] Engine 003: Avg prompt "
        "throughput: 47.6 tokens/s, Avg generation throughput: 246.5 tokens/s, Running: 8 reqs, Waiting: 2 reqs, "
        "GPU KV cache usage: 31.2%, Prefix cache hit rate: 12.0%, Preemptions: 3, Corrupted: 1 reqs"
    )
    items = play(vllm.Dialect(), [line])
    row = items[0]
    assert isinstance(row, Row)
    labels = {"engine": "3", "replica": "77"}
    assert row.values[Metric(PREFIX + "kv_cache_usage_ratio", labels)] == pytest.approx(0.312)
    assert row.values[Metric(PREFIX + "requests_waiting", labels)] == 2
    assert [e.kind for e in events(items)] == ["nan_loss"]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("It took 1.234567 seconds to fall asleep.", "engine_slept"),
        ("It took 0.5 seconds to wake up tags {'weights'}.", "engine_woke"),
        ("Worker proc VllmWorker-0 died unexpectedly, shutting down executor.", "engine_died"),
        ("Sequence group 7 is preempted by PreemptionMode.RECOMPUTE mode because there is not", "kv_retraction"),
    ],
)
def test_sentences_of_vllm(message: str, kind: str) -> None:
    assert [e.kind for e in events(play(vllm.Dialect(), [HEAD + message]))] == [kind]


def test_a_completion_cannot_forge_a_line() -> None:
    quoted = "Received request cmpl-1: prompt: 'EngineCore encountered a fatal error. It took 1 seconds to fall asleep'"
    assert play(vllm.Dialect(), [HEAD + quoted, "EngineCore encountered a fatal error."]) == []


def test_a_retraction_and_what_follows(cases: Path) -> None:
    lines = (cases / "O04-kv-retraction-throughput" / "engine.log").read_text().splitlines()
    assert all(sglang.recognises(line) for line in lines)
    items = play(sglang.Dialect(), lines)
    (event,) = events(items)
    assert event.kind == "kv_retraction" and event.labels["count"] == "2"
    assert last(items, "generation_tokens_per_second") == 33.2
    assert last(items, "requests_running") == 6
    assert last(items, "kv_cache_usage_ratio") == 0.92


def test_failures_that_a_traceback_explains_are_said_once(cases: Path) -> None:
    lines = (cases / "P04-http500-minus-infinity" / "engine.log").read_text().splitlines()
    assert sglang.recognises(lines[0])
    items = play(sglang.Dialect(), lines)
    assert events(items) == []
    reader = FailureLines()
    assert sum(1 for line in lines for e in reader.feed(line) if e.kind == "engine_request_failed") == 16
    counts = {
        dict(m.labels)["code"]: v
        for i in items
        if isinstance(i, Row)
        for m, v in i.values.items()
        if m.name.endswith("requests_total")
    }
    assert counts == {"200": 104, "500": 16}


def test_sglang_of_other_ranks_is_not_counted_again() -> None:
    line = "[2026-01-02 03:04:05 DP1 TP{}] Decode batch. #running-req: 40, cuda graph: True, #queue-req: 1"
    items = play(sglang.Dialect(), [line.format(0), line.format(1)])
    assert len(items) == 1
    assert isinstance(items[0], Row)
    assert items[0].values[Metric(PREFIX + "requests_running", {"engine": "1"})] == 40


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (
            "server_args=ServerArgs(model_path='/m', dtype='bfloat16', random_seed=7, quantization=None)",
            "engine_started",
        ),
        ("Scheduler hit an exception: Traceback", "engine_died"),
        ("SIGQUIT received. signum=None, frame=None. It usually means one child failed.", "engine_died"),
        ("Detected errors during sampling! NaN in the logits.", "nan_loss"),
        ("Cache flushed successfully!", "prefix_cache_reset"),
    ],
)
def test_sentences_of_sglang(message: str, kind: str) -> None:
    found = events(play(sglang.Dialect(), [f"[2026-01-02 03:04:05] {message}"]))
    assert [e.kind for e in found] == [kind]


def test_printed_keys_are_not_kept() -> None:
    sgl = "[2026-01-02 03:04:05] server_args=ServerArgs(model_path='/m', api_key='sk-1', tokenizer_mode='auto')"
    vll = CORE + "Initializing a V1 LLM engine (v0.31.0) with config: model='m', hf_token='hf_2', tokenizer='t'"
    given = HEAD + "non-default args: {'api_key': ['sk-3'], 'logprobs_mode': 'raw_logits'}"
    kept = [repr(e) for e in events(play(sglang.Dialect(), [sgl])) + events(play(vllm.Dialect(), [given, vll]))]
    assert len(kept) == 2 and not any(s in k for k in kept for s in ("sk-1", "hf_2", "sk-3"))
    assert "tokenizer_mode='auto'" in kept[0] and "raw_logits" in kept[1]


def test_endless_lines_cost_little() -> None:
    from posttrain_watchdog.sources.engines.follow import EngineLines
    from posttrain_watchdog.sources.engines.metrics import MetricsReader

    bodies = ["A" * 2_000_000, "a=" * 1_000_000, "(a) " * 500_000, "#a " * 700_000, "'a': " * 400_000]
    follower = EngineLines(2026)
    for body in bodies:
        for head in ("", HEAD, HEAD + "Engine 000: Avg prompt throughput: ", CORE + "non-default args: {"):
            list(follower.feed(head + body))
        list(follower.feed("[2026-01-02 03:04:05] Decode batch. " + body))
        list(follower.feed("[2026-01-02 03:04:05] server_args=ServerArgs(" + body))
        assert MetricsReader().read("vllm:" + body + "\nvllm:x{" + body + "} 1").values == {}
