"""Engines' lines inside other logs."""

from __future__ import annotations

from pathlib import Path

from posttrain_watchdog.model import Event
from posttrain_watchdog.sources.engines import sglang, vllm
from posttrain_watchdog.sources.engines.follow import EngineLines


def test_nothing_of_a_recorded_log_is_lost(recordings: Path, cases: Path) -> None:
    logs = [
        (recordings / "vllm-engine-crash" / "server.log", vllm.Dialect(2026)),
        (recordings / "server-mode-processed" / "server.log", vllm.Dialect(2026)),
        (cases / "O04-kv-retraction-throughput" / "engine.log", sglang.Dialect()),
        (cases / "P04-http500-minus-infinity" / "engine.log", sglang.Dialect()),
    ]
    for path, dialect in logs:
        lines = path.read_text().splitlines()
        alone = [i for line in lines for i in dialect.feed(line)] + list(dialect.close())
        follower = EngineLines(2026)
        followed = [i for line in lines for i in follower.feed(line)] + list(follower.close())
        assert alone == followed and alone


def test_a_trainer_without_an_engine_says_nothing(recordings: Path) -> None:
    follower = EngineLines()
    for line in (recordings / "healthy" / "stdout.log").read_text().splitlines():
        assert list(follower.feed(line)) == []
    assert list(follower.close()) == [] and follower.engine == ""


def test_both_engines_in_one_console() -> None:
    follower = EngineLines()
    lines = [
        "{'loss': 0.1}",
        "[2026-01-02 03:04:05] Decode batch. #running-req: 40, #token: 91210, token usage: 0.31, #queue-req: 0",
        "(EngineCore pid=1) ERROR 12-01 08:50:23 [core.py:1435] EngineCore encountered a fatal error.",
        "[2026-01-02 03:04:09] SIGQUIT received. signum=None, frame=None.",
    ]
    items = [i for line in lines for i in follower.feed(line)]
    assert [i.kind for i in items if isinstance(i, Event)] == ["engine_died"]
    items = list(follower.feed("[2026-01-02 03:04:05] Decode batch. #running-req: 40, #queue-req: 0"))
    assert len(items) == 1


def test_requests_before_the_first_sure_line_count_too() -> None:
    access = 'INFO:     10.0.0.1:5 - "POST /v1/completions HTTP/1.1" 200 OK'
    sure = "(EngineCore pid=1) INFO 12-01 08:50:23 [block_pool.py:1] Successfully reset prefix cache. EngineCore"
    follower = EngineLines()
    assert list(follower.feed(access)) == []
    items = [*follower.feed(access), *follower.feed(sure)]
    assert [type(i).__name__ for i in items] == ["Row", "Row", "Event"]
