"""Dumps that torch 2.13 wrote: three gloo ranks, the third never entered the fifth all_reduce."""

from __future__ import annotations

import pickle
from pathlib import Path

import orjson
import pytest
from conftest import ROOT
from incidents.course import drive

from posttrain_watchdog.sources import flight_recorder as fr

DUMPS = ROOT / "tests" / "data" / "sources" / "flight_recorder"


def _dumps() -> dict[int, fr.Dump]:
    found = {}
    for path in sorted(DUMPS.glob("*.json")):
        rank = fr.rank_of(path)
        assert rank is not None
        data = path.read_bytes()
        assert fr.recognises(data)
        found[rank] = fr.read(data, rank)
    return found


def test_the_rank_that_never_entered_is_named() -> None:
    events = fr.compare(_dumps())
    assert [e.labels["last_enqueued"] for e in events] == ["5", "5", "4"]
    assert "never entered all_reduce 5" in events[2].text
    _, found, _ = drive(events)
    hang = found["collective_hang"]
    assert dict(hang.labels)["rank"] == "2"
    assert hang.evidence["op"] == "ALL_REDUCE"


def test_ranks_that_are_equally_far_make_no_event() -> None:
    assert fr.compare({r: d for r, d in _dumps().items() if r < 2}) == []


def test_a_member_without_a_dump_is_missing_while_others_wait() -> None:
    dumps = {r: d for r, d in _dumps().items() if r < 2}
    for each in dumps.values():
        each.completed["0"] = 4
    events = fr.compare(dumps)
    assert {e.labels["missing"] for e in events} == {"2"}


def test_a_pickle_is_refused_with_its_reason() -> None:
    with pytest.raises(ValueError, match="pickle"):
        fr.read(pickle.dumps({"entries": []}), 0)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"entries": 3}'])
def test_what_is_no_dump_is_said(data: bytes) -> None:
    with pytest.raises(ValueError, match="no "):
        fr.read(data, 0)


def test_damaged_entries_are_left_out() -> None:
    data = orjson.dumps({"entries": [3, {}, {"collective_seq_id": "x"}], "pg_status": {"0": 1}, "pg_config": []})
    assert fr.compare({0: fr.read(data, 0), 1: fr.read(data, 1)}) == []


def test_the_rank_is_the_last_number_of_the_name() -> None:
    assert fr.rank_of(Path("/tmp/nccl_trace_rank_13")) == 13
    assert fr.rank_of(Path("node7_trace_3.json")) == 3
    assert fr.rank_of(Path("trace.txt")) is None
