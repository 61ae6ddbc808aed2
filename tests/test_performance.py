"""The demo writes what was recorded."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from posttrain_watchdog.performance import Performer
from posttrain_watchdog.shipped import demo_recording


@pytest.mark.parametrize("name", ["healthy", "raw-logprobs"])
def test_step_by_step_the_whole_recording_is_written(tmp_path: Path, name: str) -> None:
    performer = Performer(demo_recording() / name, tmp_path)
    assert performer.perform() == 0
    assert performer.console.read_bytes().count(b"{'loss'") == 1
    assert performer.tokens.read_bytes().count(b"\n") == 8
    steps = [0]
    while (step := performer.perform()) is not None:
        steps.append(step)
    assert steps == sorted(set(steps))
    for written, kept in ((performer.console, "stdout.log.gz"), (performer.tokens, "tokens.jsonl.gz")):
        assert written.read_bytes() == gzip.decompress((demo_recording() / name / kept).read_bytes())
