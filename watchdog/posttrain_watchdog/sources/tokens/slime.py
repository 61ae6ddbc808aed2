"""slime's torch files: the train dump (both sides) and the rollout dump (the engine's side only: rewards, lengths).

Promises: nothing in a file can run: torch's weights-only reader, and nothing but torch's zip form (the older tar
form had a hole in that reader, CVE-2025-32434); anything else is refused with the reason. A file that is not whole
yet is refused and can be tried again. Raises ValueError, OSError.

Source: slime utils/train_dump_utils.py (format_version 2: `samples`; before: `rollout_data`, a list a field) and
observability/rollout_data_utils.py at 624b824 (rollouts; those of an evaluation have "eval_" in their name).
`log_probs` are from before the update, or from the forward pass of the training step where slime skips the former.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from posttrain_watchdog.model import TokenBatch
from posttrain_watchdog.sources.samples import ABSENT, Sample
from posttrain_watchdog.sources.tokens import native

_NAMES = {
    "engine_logprobs": ("rollout_log_probs",),
    "trainer_logprobs": ("log_probs",),
    "reference_logprobs": ("ref_log_probs",),
    "mask": ("loss_masks", "loss_mask"),
    "reward": ("rewards", "reward"),
    "group": ("group_index",),
}


def accepts(path: Path) -> bool:
    """A whole torch file with a rollout in it; its content is looked at, not loaded."""
    try:
        with zipfile.ZipFile(path) as archive:
            inside = next((n for n in archive.namelist() if n.endswith("/data.pkl")), None)
            content = archive.read(inside) if inside else b""
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError):
        return False
    return b"rollout_id" in content and (b"samples" in content or b"rollout_data" in content)


def read_file(path: Path) -> TokenBatch:
    """Raises OSError, and ValueError for what is no dump, is not whole, or holds more than tensors and containers."""
    content = _load(path)
    step = content.get("rollout_id", -1)
    records = [_sequence(s, step, content) for s in _samples(content) if _has(s, "rollout_log_probs", "log_probs")]
    return native.from_records(records)


def samples_of_file(path: Path) -> list[Sample]:
    """The completions of a rollout dump; none of a train dump, whose rewards are shaped. Raises as read_file does."""
    if "eval_" in path.name:
        return []
    content = _load(path)
    step = content.get("rollout_id", -1)
    return [_completion(s, step) for s in _samples(content) if "response_length" in s]


def _completion(sample: Mapping[str, Any], step: Any) -> Sample:
    reward, status = sample.get("reward", ABSENT), sample.get("status")
    return Sample(
        step,
        ABSENT if isinstance(reward, dict) else reward,  # which of them counts is the reward_key of the command line
        length=sample["response_length"],
        truncated=status == "truncated" if status in ("completed", "truncated") else None,
        prompt=sample.get("group_index"),
        text=sample.get("response"),
    )


def _load(path: Path) -> dict[str, Any]:
    import torch

    if not zipfile.is_zipfile(path):
        raise ValueError("is no whole torch file")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"refused: it holds more than tensors and plain containers ({reason})") from None
    except (RuntimeError, EOFError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"is no readable torch file: {type(error).__name__}") from None
    if not isinstance(content, dict):
        raise ValueError("is no dump of slime: expected a dictionary")
    return content


def _samples(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    samples = content.get("samples")
    if isinstance(samples, list):
        return [s for s in samples if isinstance(s, dict)]
    columns = content.get("rollout_data")
    if not isinstance(columns, dict):
        return []
    lists = {k: v for k, v in columns.items() if isinstance(v, list)}
    count = len(lists.get("tokens", ()))
    return [{k: v[i] for k, v in lists.items() if len(v) == count} for i in range(count)]


def _has(sample: Mapping[str, Any], *names: str) -> bool:
    return all(sample.get(name) is not None for name in names)


def _plain(value: Any) -> Any:
    """Numbers of a tensor, whatever its number format."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, (tuple, np.ndarray)) else value


def _sequence(sample: Mapping[str, Any], step: Any, content: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"step": step}
    for ours, theirs in _NAMES.items():
        value = next((sample[name] for name in theirs if sample.get(name) is not None), None)
        if value is not None:
            found[ours] = _plain(value)
    length = len(found["trainer_logprobs"])
    ids = _plain(sample.get("tokens"))
    if isinstance(ids, list) and len(ids) >= length:
        found["token_ids"], found["prompt_length"] = ids[len(ids) - length :], len(ids) - length
    advantages = _plain(sample.get("advantages"))
    if isinstance(advantages, list) and advantages:
        found["advantage"] = advantages[0]
    if "truncated" in sample:
        found["finish_reason"] = "length" if float(sample["truncated"]) else "stop"
    rank = sample.get("data_parallel_rank", content.get("rank"))
    found["labels"] = {"rank": "" if rank is None else str(rank)}
    return found
