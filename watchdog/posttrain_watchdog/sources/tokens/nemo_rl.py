"""NeMo-RL's train_data_stepN.jsonl: whole sequences, padded to the batch, every value in a list of one.

Promises: padding, the prompt and the first position (which no model predicts) are cut away; what does not count in
the loss is masked (`token_loss_mask` times `sample_loss_mask`). A file whose trainer side is zero throughout has
none (`force_on_policy_ratio`, NeMo-RL then skips the second pass): its sequences are left out rather than taken for
certain tokens. Bare NaN and Infinity, which the writer lets through, are read as such.

Source: NeMo-RL nemo_rl/utils/logger.py (log_batched_dict_as_jsonl), algorithms/grpo.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain_watchdog.model import TokenBatch
from posttrain_watchdog.sources.tokens import native

_STEP = re.compile(r"train_data_step(\d+)")
_RUN = re.compile(r"exp_(\d+)")


def recognises(record: Mapping[str, Any]) -> bool:
    """Both sides under NeMo-RL's names, wrapped or not."""
    return "generation_logprobs" in record and "prev_logprobs" in record and "token_loss_mask" in record


def read(lines: Sequence[bytes], path: Path | None = None) -> TokenBatch:
    """Complete lines as one batch. The step stands in the file's name. Raises ValueError for what is no JSON object."""
    named = _STEP.search(path.name) if path is not None else None
    step = int(named.group(1)) if named else -1
    records = [_sequence(record, step) for record in native.records(lines) if recognises(record)]
    if not any(any(x for x, m in zip(r["trainer_logprobs"], r["counted"], strict=False) if m) for r in records):
        records = []
    for record in records:
        del record["counted"]
    return native.from_records(records)


def superseded(paths: Sequence[Path]) -> set[Path]:
    """Files of an earlier exp_NNN whose step a later one, of the resumed run, wrote again."""
    newest: dict[tuple[Path, str], tuple[int, Path]] = {}
    old: set[Path] = set()
    for path in paths:
        run = _RUN.fullmatch(path.parent.name)
        if run is None:
            continue
        key, number = (path.parent.parent, path.name), int(run.group(1))
        known = newest.get(key)
        if known is not None and known[0] > number:
            old.add(path)
            continue
        if known is not None:
            old.add(known[1])
        newest[key] = (number, path)
    return old


def _one(value: Any) -> Any:
    """What the list of one holds."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _sequence(record: Mapping[str, Any], step: int) -> dict[str, Any]:
    engine, trainer, counts = (
        _listed(record.get(name)) for name in ("generation_logprobs", "prev_logprobs", "token_loss_mask")
    )
    length = _one(record.get("input_lengths"))
    end = min(int(length), len(engine)) if isinstance(length, (int, float)) else len(engine)
    given = (i for i in range(1, end) if engine[i] or (i < len(counts) and counts[i]))
    start = next(given, min(1, end))
    kept = _one(record.get("sample_loss_mask"))
    kept = 1.0 if kept is None else float(kept)
    counted = counts[start:end]
    found: dict[str, Any] = {
        "step": record.get("step", step),
        "engine_logprobs": engine[start:end],
        "trainer_logprobs": trainer[start:end],
        "mask": counted if kept > 0 else [0] * len(counted),
        "counted": counted,
        "prompt_length": start,
        "reward": _one(record.get("rewards")),
    }
    ids = record.get("token_ids")
    if ids is not None:
        found["token_ids"] = _listed(ids)[start:end]
    advantages = _one(record.get("advantages"))
    if isinstance(advantages, list):
        advantages = next((a for a, c in zip(advantages[start:end], counted, strict=False) if c), None)
    found["advantage"] = advantages
    return found


def _listed(value: Any) -> list[Any]:
    inner = value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list) else value
    return inner if isinstance(inner, list) else []
