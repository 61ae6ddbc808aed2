"""Ranks wait in a collective that one rank never entered, and which one that is.

The rank that is behind, or that says nothing at all, is the subject; those that complain are its victims.
Guards: what died or ran out of memory before the first complaint is the cause, and the timeout its consequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from posttrain_watchdog.incidents.finding import STATED, STRONG, STRONGLY_AGAINST, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.model import Event

_EARLIER = ("cuda_oom", "host_oom", "segfault", "xid", "gpu_lost", "cuda_error", "engine_died")


def judge(history: History) -> Finding | None:
    said = _since_resume(history, history.events("nccl_timeout"))
    errors = _since_resume(history, history.events("nccl_error"))
    stuck = [e for e in errors if "seconds" in e.labels]
    if not said and not stuck:
        return None
    complaints = said or stuck
    reached = _reached(said)
    behind, ahead = _behind(reached)
    silent = _silent(said) if not behind else []
    missing = sorted({r for e in said for r in _numbers(e.labels.get("missing", ""))})
    witnesses = {"ranks say so": STATED}
    evidence: dict[str, float | str] = {"ranks that waited": float(len({e.labels.get("rank", "") for e in said}))}
    subject = ""
    if missing:
        subject = ", ".join(map(str, missing))
        witnesses["the barrier names who is missing"] = STRONG
    elif behind:
        subject = ", ".join(map(str, behind))
        witnesses["one side is behind"] = STRONG
        evidence["last enqueued"] = f"rank {subject}: {reached[behind[0]]} versus {ahead} of the others"
    elif silent:
        subject = ", ".join(map(str, silent))
        witnesses["a rank said nothing"] = SUPPORT
        evidence["silent"] = (
            f"rank {subject} of 0 to {max(_ranks(said))} reported nothing: it never entered, or is dead"
        )
    elif reached:
        evidence["could not be told"] = (
            "all reporting ranks are equally far; a rank whose log is not read may be behind"
        )
    ops = Counter(e.labels.get("op", e.labels.get("op2", "")) for e in said)
    ops.pop("", None)
    if ops:
        evidence["op"] = ops.most_common(1)[0][0]
    for name in ("seq", "timeout_ms", "group"):
        value = next((e.labels[name] for e in said if name in e.labels), "")
        if value:
            evidence[name] = value
    limit = next((int(e.labels["timeout_ms"]) for e in said if "timeout_ms" in e.labels), None)
    if limit is not None and limit < 300_000:
        evidence["timeout"] = f"{limit / 1000:g} s, below the 300 s of the guide: a slow step looks like a hang"
    start = history.events("weight_sync_started")
    done = history.events("weights_synced")
    if start and len(done) < len(start):
        evidence["during"] = start[-1].text[:100]
    earlier = [
        e for kind in _EARLIER for e in _since_resume(history, history.events(kind)) if _before(e, complaints[0])
    ]
    if earlier:
        witnesses["something failed before it"] = STRONGLY_AGAINST
        evidence["before it"] = f"{earlier[0].kind}: {earlier[0].text[:120]}"
    return Finding(
        summary=("rank " + subject + " is behind" if subject else "ranks wait for one another")
        + f" in {evidence.get('op', 'a collective')}"
        + (f": {evidence['last enqueued']}" if "last enqueued" in evidence else ""),
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            f"stack of rank {subject or 'the one that does not report'} (py-spy dump): where does it wait instead",
            "which process group it waits on, and whether all ranks take the same branch (logging, empty batch, "
            "uneven data)",
            "kernel log and GPU state of that rank's node at that minute",
        ),
        first_step=complaints[0].step,
        labels={"rank": subject},
    )


def _since_resume(history: History, events: Sequence[Event]) -> list[Event]:
    """Events after the last start of the run, where times tell."""
    starts = [e.time for e in history.events("resumed", "run_started") if e.time is not None]
    last = max(starts, default=None)
    return [e for e in events if last is None or e.time is None or e.time >= last]


def _ranks(events: Sequence[Event]) -> list[int]:
    return [int(e.labels["rank"]) for e in events if e.labels.get("rank", "").isdigit()]


def _reached(events: Sequence[Event]) -> dict[int, int]:
    """How far each rank got: last enqueued work where it says so, else the work it waited in."""
    told: dict[int, dict[str, int]] = {}
    groups = Counter(e.labels["group"] for e in events if "group" in e.labels)
    main = groups.most_common(1)[0][0] if groups else ""
    for event in events:
        rank = event.labels.get("rank", "")
        if event.labels.get("group", main) != main:
            continue  # sequence numbers of different process groups cannot be compared
        for name in ("last_enqueued", "seq"):
            if rank.isdigit() and event.labels.get(name, "").lstrip("-").isdigit():
                told.setdefault(int(rank), {})[name] = int(event.labels[name])
    common = "last_enqueued" if all("last_enqueued" in t for t in told.values()) else "seq"
    return {rank: t[common] for rank, t in told.items() if common in t}


def _behind(reached: dict[int, int]) -> tuple[list[int], int]:
    """Ranks that are fewer and less far than the others, and how far those are; none where all are equal."""
    if len(reached) < 2:
        return [], 0
    ahead = Counter(reached.values()).most_common(1)[0][0]
    behind = sorted(r for r, n in reached.items() if n < ahead)
    return (behind, ahead) if behind and len(behind) <= len(reached) / 2 else ([], ahead)


def _silent(events: Sequence[Event]) -> list[int]:
    heard = set(_ranks(events))
    absent = sorted(set(range(max(heard, default=0) + 1)) - heard)
    return absent if len(heard) >= 2 and len(absent) <= len(heard) / 2 else []


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.replace(",", " ").split() if part.isdigit()]


def _before(event: Event, other: Event) -> bool:
    if event.time is not None and other.time is not None:
        return event.time <= other.time
    return event.step is not None and other.step is not None and event.step < other.step
