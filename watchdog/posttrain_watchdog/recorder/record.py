"""Writes what engine and trainer say about the same tokens, from inside the trainer.

Promises: never raises into the trainer, whatever it is given and whatever the disk does; what could not be written is
counted, and each kind of failure is logged once. The disk taken is bounded. Nothing is kept of the arrays that are
handed in, and none is changed. Imports numpy and the standard library, nothing else.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import zlib
from pathlib import Path
from typing import Any

from posttrain_watchdog.recorder.folder import DumpFolder
from posttrain_watchdog.recorder.sequences import sequences

_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


class Recorder:
    """One a process. `folder` holds at most `keep` files of `max_bytes` for each rank.

    `fraction` of the sequences is written: by whole groups where `group` is given, the same ones on every rank.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        fraction: float = 1.0,
        max_bytes: int = 64 << 20,
        keep: int = 8,
        rank: int | None = None,
        seed: int = 0,
    ) -> None:
        self.written = 0
        """sequences on disk"""
        self.failed = 0
        """calls of `record` of which nothing, or not everything, could be written"""
        self.last_failure = ""
        self._rank = _rank() if rank is None else rank
        self._files = DumpFolder(Path(folder), self._rank, max_bytes, keep)
        self._fraction = fraction
        self._seed = seed
        self._lock = threading.Lock()
        self._logged: set[str] = set()

    def record(
        self,
        *,
        step: Any,
        engine_logprobs: Any = None,
        trainer_logprobs: Any = None,
        mask: Any = None,
        token_ids: Any = None,
        entropy: Any = None,
        offsets: Any = None,
        **fields: Any,
    ) -> int:
        """Writes one batch; returns the number of sequences written. Never raises.

        Logprobs are natural, of the tokens in `token_ids`, on the completion (or with `mask` 0 on the prompt).
        Shapes: [B, T], a list of B arrays, or packed with `offsets` [B + 1]. `step` is the optimizer step.
        Further `fields` with a meaning: `current_logprobs`, `reference_logprobs`, `tool_mask`, `engine_token_ids`,
        `token_versions` per token; `weight_version`, `trainer_version`, `temperature`, `group`, `reward`,
        `advantage`, `prompt_length`, `finish_reason` per sequence; `prompt_ids` with `prompt_mask`. Others are kept.
        """
        try:
            with self._lock:
                lines = self._lines(
                    {
                        "step": step,
                        "engine_logprobs": engine_logprobs,
                        "trainer_logprobs": trainer_logprobs,
                        "mask": mask,
                        "token_ids": token_ids,
                        "entropy": entropy,
                        **fields,
                    },
                    offsets,
                )
                skipped = self._files.skipped
                written = self._files.append(lines)
                self.written += written
            if self._files.skipped > skipped:
                self._fail("a sequence is longer than a file may be (max_bytes)", "max_bytes")
            return written
        except Exception as error:  # noqa: BLE001 - a recorder must not end a training run
            self._fail(f"{type(error).__name__}: {error}", type(error).__name__)
            return 0

    def close(self) -> None:
        """Lets the file go; a later `record` begins another."""
        with self._lock:
            self._files.close()

    def _lines(self, fields: dict[str, Any], offsets: Any) -> list[bytes]:
        records = sequences(fields, offsets)
        if self._fraction < 1.0:
            records = [r for i, r in enumerate(records) if self._chosen(r, i)]
        for record in records:
            record.setdefault("rank", str(self._rank))  # a text: a label that diverging sequences may share
        return [json.dumps(r, separators=(",", ":"), allow_nan=False).encode() + b"\n" for r in records]

    def _chosen(self, record: dict[str, Any], place: int) -> bool:
        group = record.get("group", record.get("group_id"))
        which = f"r{self._rank} {place}" if group is None else str(group)
        share = zlib.crc32(f"{self._seed} {record['step']} {which}".encode()) / 2**32
        return share < self._fraction

    def _fail(self, reason: str, kind: str) -> None:
        self.failed += 1
        self.last_failure = reason
        if kind not in self._logged:
            self._logged.add(kind)
            logging.getLogger(__name__).warning("not recorded: %s (logged once, the run goes on)", reason)


def _rank() -> int:
    found = next((os.environ[name] for name in _RANKS if name in os.environ), "0")
    return int(found) if found.isdigit() else 0
