"""SkyRL's dumped training input (global_step_N_training_input.pkl): a pickle, read without running anything of it.

Promises: only tensors and plain containers come out (unpickler.py); any other name in the file ends the reading.
Sequences are left-padded, what belongs to the response stands at the right end; padding is cut away. A dump whose
trainer or engine side is missing (`action_log_probs` None: the forward pass was skipped) has nothing to compare.

Source: SkyRL skyrl_train/training_batch.py (TensorBatch: `batch_dict` of tensors saved one by one).
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from posttrain_watchdog.model import TokenBatch
from posttrain_watchdog.sources.tokens import native, unpickler

_STEP = re.compile(r"global_step_(\d+)")
_SHELLS = (
    ("training_batch", "TrainingInputBatch"),
    ("training_batch", "TensorBatch"),
    ("training_batch", "_rebuild_tensor_batch"),
)
_HEAD = 4096
_NAMES = {
    "rollout_logprobs": "engine_logprobs",
    "action_log_probs": "trainer_logprobs",
    "base_action_log_probs": "reference_logprobs",
    "loss_mask": "mask",
}


def accepts(path: Path) -> bool:
    """A pickle that begins with SkyRL's batch; its content is looked at, not loaded."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return head.startswith(b"\x80") and b"training_batch" in head and b"batch_dict" in head


def read_file(path: Path) -> TokenBatch:
    """One step. Raises OSError; ValueError where the file is damaged or asks for more than tensors."""
    with path.open("rb") as file:
        content = unpickler.read(file, _SHELLS)
    columns = _columns(content)
    if columns.get("rollout_logprobs") is None or columns.get("action_log_probs") is None:
        return native.from_records([])
    named = _STEP.search(path.name)
    step = int(named.group(1)) if named else -1
    count = len(columns["rollout_logprobs"])
    return native.from_records([_sequence(columns, i, step) for i in range(count)])


def _columns(content: Any) -> dict[str, Any]:
    state = content.state if isinstance(content, unpickler.Shell) else content
    if not isinstance(state, Mapping) or not isinstance(state.get("batch_dict"), Mapping):
        raise ValueError("is no batch of SkyRL: expected batch_dict")
    return {str(name): _array(value) for name, value in state["batch_dict"].items()}


def _array(value: Any) -> Any:
    """A numpy array of what holds one tensor: the tensor, torch's bytes of it, or {"format", "data"}."""
    if isinstance(value, Mapping):
        value = value.get("data")
    if isinstance(value, (bytes, bytearray)):
        import torch

        if not bytes(value[:4]) == b"PK\x03\x04":
            raise ValueError("refused: a tensor in it is not in torch's zip form")
        try:
            value = torch.load(io.BytesIO(bytes(value)), map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise ValueError(f"refused: a tensor in it holds more than numbers ({type(error).__name__})") from None
    if value is None or isinstance(value, np.ndarray):
        return value
    return value.float().numpy() if hasattr(value, "float") and hasattr(value, "numpy") else None


def _sequence(columns: Mapping[str, Any], row: int, step: int) -> dict[str, Any]:
    width = len(columns["rollout_logprobs"][row])
    covered = columns.get("response_mask")
    if covered is None:
        covered = columns.get("loss_mask")
    places = np.flatnonzero(covered[row]) if covered is not None else np.arange(width)
    start, end = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, width)
    found: dict[str, Any] = {"step": step}
    for theirs, ours in _NAMES.items():
        if columns.get(theirs) is not None:
            found[ours] = columns[theirs][row][start:end].tolist()
    sequences, attention = columns.get("sequences"), columns.get("attention_mask")
    if sequences is not None:
        # response columns are the last `width` of the sequence
        found["token_ids"] = [int(t) for t in sequences[row][len(sequences[row]) - width :][start:end]]
        if attention is not None:
            found["prompt_length"] = int(attention[row].sum()) - (end - start)
    advantages = columns.get("advantages")
    if advantages is not None and end > start:
        found["advantage"] = float(advantages[row][start])
    return found
