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
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

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
    if not any(any(compress(r["trainer_logprobs"], r["mask"])) for r in records):
        records = []
    kept = np.array([r.pop("kept") for r in records], np.bool_)
    batch = native.from_records(records, prompts=True)
    batch.mask &= np.repeat(kept, np.diff(batch.offsets))
    return batch


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
    engine = _listed(record["generation_logprobs"])
    counted = _listed(record["token_loss_mask"])
    length, kept = _one(record.get("input_lengths")), _one(record.get("sample_loss_mask"))
    end = int(length) if isinstance(length, (int, float)) else len(engine)
    found: dict[str, Any] = {
        "step": record.get("step", step),
        "engine_logprobs": engine,
        "trainer_logprobs": _listed(record["prev_logprobs"]),
        "token_ids": _listed(record.get("token_ids")) or None,
        "mask": counted,
    }
    if end < len(engine):
        found |= {name: value[:end] for name, value in found.items() if isinstance(value, list)}
    found["kept"] = kept is None or float(kept) > 0
    advantages = _one(record.get("advantages"))
    if isinstance(advantages, list):
        advantages = next(compress(advantages, counted), None)
    found["advantage"], found["reward"] = advantages, _one(record.get("rewards"))
    return found


def _listed(value: Any) -> list[Any]:
    inner = value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list) else value
    return inner if isinstance(inner, list) else []
