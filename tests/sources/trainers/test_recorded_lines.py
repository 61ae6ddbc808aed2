"""Literal lines of every trainer, and the readings a person has checked: tests/data/trainers/<dialect>/*.log and .json.

`GOLDEN=1 pytest tests/sources/trainers/test_recorded_lines.py` rewrites the expectations; read the difference.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from posttrain_watchdog.model import Event
from posttrain_watchdog.sources.detection import Follower
from posttrain_watchdog.vocabulary import METRICS
from posttrain_watchdog.vocabulary.run import EVENTS
from posttrain_watchdog.vocabulary.trainer import PREFIX

FOLDER = Path(__file__).resolve().parents[2] / "data" / "trainers"
LOGS = sorted(FOLDER.glob("*/*.log"))


def said(path: Path) -> list[dict[str, Any]]:
    """What a log says, as plain JSON; numbers that JSON lacks are texts."""
    follower, found = Follower(), []
    lines = path.read_bytes().split(b"\n")
    items = [item for line in lines for item in follower.feed(line.decode("utf-8", "replace"))]
    for item in [*items, *follower.close()]:
        if isinstance(item, Event):
            assert item.kind in EVENTS
            found.append({"event": item.kind, "step": item.step})
            continue
        assert all(metric.name in METRICS for metric in item.values)
        values = {
            dict(m.labels).get("key") or repr(m).removeprefix(PREFIX): v if math.isfinite(v) else str(v)
            for m, v in item.values.items()
        }
        found.append({"step": item.step, "time": item.time, "values": values})
    return [{"dialect": follower.dialect}, *found]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_literal_lines_give_the_readings_that_were_checked(path: Path) -> None:
    expected = path.with_suffix(".json")
    found = said(path)
    if os.environ.get("GOLDEN"):
        expected.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert found == json.loads(expected.read_text(encoding="utf-8"))
    assert found[0] == {"dialect": path.parent.name}
