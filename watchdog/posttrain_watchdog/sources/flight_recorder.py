"""torch's flight recorder: which rank is behind in which collective.

Promises: reads the JSON form alone (torch.distributed `_dump_fr_trace_json`, TORCH_FR dumps converted by fr_trace -j);
a pickle runs code and is refused with that reason. Ranks that agree in everything make no event. Never guesses a rank:
it comes from the file's name, whose last number it is, as torch writes it.
Source: torch 2.13 torch/distributed/flight_recorder, and dumps that it wrote.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from posttrain_watchdog.model import Event

_RANK = re.compile(r"(\d+)(?:\.json)?$")
_PICKLE = b"\x80"
_ZIP = b"PK\x03\x04"


@dataclass(slots=True)
class Dump:
    """What one rank recorded. Groups are named by torch's process group id."""

    rank: int
    enqueued: dict[str, int] = field(default_factory=dict)
    """group -> sequence number of the last collective that this rank entered"""
    completed: dict[str, int] = field(default_factory=dict)
    ops: dict[str, dict[int, str]] = field(default_factory=dict)
    """group -> sequence number -> operation"""
    members: dict[str, list[int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    frames: dict[str, str] = field(default_factory=dict)
    """group -> innermost Python function of the last collective, where stacks were recorded"""


def recognises(data: bytes) -> bool:
    """Whether these bytes are a flight-recorder dump in JSON."""
    return data[:1] == b"{" and b'"entries"' in data and (b'"pg_config"' in data or b'"pg_status"' in data)


def rank_of(path: Path) -> int | None:
    """The rank that torch wrote at the end of the file's name."""
    found = _RANK.search(path.name)
    return int(found[1]) if found else None


def read(data: bytes, rank: int) -> Dump:
    """One rank's dump. Raises ValueError, with the reason, for a pickle and for what is no such dump."""
    if data[:1] == _PICKLE or data[:4] == _ZIP:
        raise ValueError(
            "a pickle runs code when it is read: write the dump as JSON (fr_trace -j, _dump_fr_trace_json)"
        )
    try:
        told = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(told, dict) or not isinstance(told.get("entries", []), list):
        raise ValueError("no flight-recorder dump: no list of entries")
    dump = Dump(rank)
    for group, status in _pairs(told.get("pg_status")):
        dump.enqueued[group] = _number(status.get("last_enqueued_collective"))
        dump.completed[group] = _number(status.get("last_completed_collective"))
    for group, config in _pairs(told.get("pg_config")):
        dump.members[group or "0"] = [int(r) for r in re.findall(r"\d+", str(config.get("ranks", "")))]
    for entry in told.get("entries", []):
        if not isinstance(entry, dict) or entry.get("is_p2p"):
            continue
        named = entry.get("process_group") or ("", "")
        group = str(named[0]) if named else str(entry.get("pg_id", ""))
        seq = _number(entry.get("collective_seq_id"))
        dump.names[group] = str(named[-1])
        dump.ops.setdefault(group, {})[seq] = str(entry.get("profiling_name", "")).rpartition(":")[2]
        if seq >= dump.enqueued.get(group, -1):
            dump.enqueued[group] = seq
            frames = entry.get("frames") or []
            if frames and isinstance(frames[0], dict):
                dump.frames[group] = str(frames[0].get("name", ""))
        if entry.get("state") == "completed":
            dump.completed[group] = max(seq, dump.completed.get(group, -1))
    return dump


def compare(dumps: Mapping[int, Dump]) -> list[Event]:
    """An event a rank for every group in which ranks are not equally far.

    Labels are those of the timeouts in logs (rank, group, op, seq, last_enqueued, last_completed), so that whoever
    judges those judges these. A member whose dump is absent is named in `missing`.
    """
    events: list[Event] = []
    for group in sorted({g for d in dumps.values() for g in d.enqueued}):
        reached = {rank: d.enqueued[group] for rank, d in sorted(dumps.items()) if group in d.enqueued}
        members = max((d.members.get(group, []) for d in dumps.values()), key=len)
        absent = sorted(set(members) - set(dumps))
        furthest = max(reached.values())
        waiting = any(d.completed.get(group, -1) < d.enqueued.get(group, -1) for d in dumps.values())
        if len(set(reached.values())) < 2 and not (absent and waiting):
            continue
        usual = Counter(reached.values()).most_common(1)[0][0]
        for rank, seq in reached.items():
            dump = dumps[rank]
            waits = next((d.ops[group][seq + 1] for d in dumps.values() if seq + 1 in d.ops.get(group, {})), "")
            op = dump.ops.get(group, {}).get(seq, "")
            name = dump.names.get(group) or group
            text = f"rank {rank}: last entered {op or 'collective'} {seq} of {furthest} in {name}"
            if seq < usual and waits:
                text += f"; never entered {waits} {seq + 1}"
            labels = {
                "rank": str(rank), "group": group, "op": (waits if seq < usual else op).upper(), "seq": str(seq),
                "last_enqueued": str(seq), "last_completed": str(dump.completed.get(group, -1)),
                "where": dump.frames.get(group, ""), "missing": " ".join(map(str, absent)), "by": "flight_recorder",
            }  # fmt: skip
            events.append(Event("nccl_timeout", text, {k: v for k, v in labels.items() if v}))
    return events


def _pairs(value: object) -> list[tuple[str, Mapping[str, object]]]:
    return [(str(k), v) for k, v in value.items() if isinstance(v, Mapping)] if isinstance(value, Mapping) else []


def _number(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        return -1
