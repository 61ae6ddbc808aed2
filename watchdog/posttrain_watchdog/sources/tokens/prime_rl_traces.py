"""prime-rl's traces.jsonl: the rollouts as the orchestrator kept them, logprobs rounded to four decimals.

Promises: a trace is a sequence where a consumer stamped the trainer's logprobs into it; others hold one side only,
there is nothing to compare, and they are left out. Rounding bounds what can be seen: ratios are off by up to 1e-4.

Source: prime-rl with verifiers 0.4: records with `traces[].nodes[]`, each node with token_ids, mask and logprobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain_watchdog.model import TokenBatch
from posttrain_watchdog.sources.tokens import native


def recognises(record: Mapping[str, Any]) -> bool:
    return any(isinstance(node.get("logprobs"), list) for trace in _traces(record) for node in _nodes(trace))


def read(lines: Sequence[bytes], path: Path | None = None) -> TokenBatch:
    """Complete lines as one batch; the step is the record's, else that of the folder step_N above."""
    folder = next((p for p in path.parts if p.startswith("step_")), "") if path is not None else ""
    number = folder.removeprefix("step_")
    step = int(number) if number.isdigit() else -1
    found = []
    for record in native.records(lines):
        for trace in _traces(record):
            nodes = [n for n in _nodes(trace) if isinstance(n.get("logprobs"), list)]
            if nodes and all(isinstance(n.get("trainer_logprobs"), list) for n in nodes):
                found.append(_sequence(nodes, trace, record.get("step", step)))
    return native.from_records(found)


def _traces(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    traces = record.get("traces")
    if not isinstance(traces, list):
        traces = [record] if isinstance(record.get("nodes"), list) else []
    return [t for t in traces if isinstance(t, dict)]


def _nodes(trace: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    nodes = trace.get("nodes")
    return [n for n in nodes if isinstance(n, dict)] if isinstance(nodes, list) else []


def _sequence(nodes: Sequence[Mapping[str, Any]], trace: Mapping[str, Any], step: int) -> dict[str, Any]:
    found: dict[str, Any] = {"step": step, "engine_logprobs": [], "trainer_logprobs": [], "token_ids": [], "mask": []}
    for node in nodes:
        logprobs, trainer = node["logprobs"], node["trainer_logprobs"]
        length = max(len(logprobs), len(trainer))
        for name, values, missing in (
            ("engine_logprobs", logprobs, None),
            ("trainer_logprobs", trainer, None),
            ("token_ids", node.get("token_ids") or [], -1),
            ("mask", node.get("mask") or [True] * length, False),
        ):
            found[name] += [*values[:length], *[missing] * (length - len(values))]
    if isinstance(trace.get("reward"), (int, float)):
        found["reward"] = trace["reward"]
    return found
