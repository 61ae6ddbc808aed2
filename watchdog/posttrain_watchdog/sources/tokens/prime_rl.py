"""prime-rl's token export: token_exports/step_N/rank_R.jsonl, then an empty file STABLE.

Promises: a step is read when it is whole, and once. STABLE says that it is whole; a resumed trainer writes the files
anew while the old STABLE still lies there, so that it counts only when it is not older than they are. Only the
tokens of the policy loss are masked in: `loss_mask` where `rl_weights` or `ref_kl_weights` say so, null meaning all
of it. The trainer side is that of the policy in the loss, not of a frozen one.

Source: prime-rl trainer/rl/token_export.py, schema_version 1; null stands for non-finite or undefined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

from posttrain_watchdog.model import TokenBatch
from posttrain_watchdog.sources.tokens import native

_MARK = "STABLE"


def recognises(record: Mapping[str, Any]) -> bool:
    return "inference_logprobs" in record and "trainer_logprobs" in record and "loss_mask" in record


def incomplete(path: Path, *, growing: bool) -> str:
    """Why the file must not be read yet, empty if it may be. A copy need not keep times, so they only count live."""
    if not path.parent.name.startswith("step_"):
        return ""
    mark = path.parent / _MARK
    if not mark.exists():
        return f"its step is not complete: {_MARK} is missing"
    if growing and any(mark.stat().st_mtime < p.stat().st_mtime for p in path.parent.glob("rank_*.jsonl")):
        return f"its step is being written anew: {_MARK} is older than the ranks' files"
    return ""


def read_file(path: Path) -> TokenBatch:
    """One rank's file. Raises OSError; ValueError where a line is no JSON object."""
    lines = path.read_bytes().split(b"\n")
    lines.pop()  # empty, or the half line of a killed writer
    return read(lines)


def read(lines: Sequence[bytes]) -> TokenBatch:
    """Complete lines as one batch. Raises ValueError where a line is no JSON object."""
    records = (_sequence(record) for record in native.records(lines) if recognises(record))
    return native.from_records([r for r in records if r is not None], prompts=True)


def _sequence(record: Mapping[str, Any]) -> dict[str, Any] | None:
    mask = _policy_mask(record)
    if not any(mask):
        return None
    found: dict[str, Any] = {
        "step": record.get("step"),
        "engine_logprobs": record["inference_logprobs"],
        "trainer_logprobs": record["trainer_logprobs"],
        "mask": mask,
        "token_ids": record.get("token_ids"),
        "entropy": record.get("entropy"),
        "labels": {"rank": str(record.get("rank", "")), "env": str(record.get("env_name", ""))},
    }
    advantages = record.get("advantages")
    if isinstance(advantages, list):
        found["advantage"] = next(compress(advantages, mask), None)
    return found


def _policy_mask(record: Mapping[str, Any]) -> list[bool]:
    mask: list[bool] = record["loss_mask"]
    weights = [w for name in ("rl_weights", "ref_kl_weights") if isinstance(w := record.get(name), list)]
    given = [w for w in weights if w.count(None) < len(w)]
    if not given or given[0] is not weights[0]:
        return mask  # null rl_weights: the whole mask is the policy's
    return [bool(m) and any(w[i] not in (None, 0) for w in given if i < len(w)) for i, m in enumerate(mask)]
