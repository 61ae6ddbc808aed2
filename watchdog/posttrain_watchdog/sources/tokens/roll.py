"""ROLL's logging boards (data_<time>.jsonl): the trainer's logprobs of responses; the engine's where they are there.

Promises: a record without the engine's side has nothing to compare, and gives no tokens (no release read so far
writes `infer_logprobs` into the board); its reward and length are read either way.

Source: ROLL pipeline/rlvr/rlvr_pipeline.py (save_metrics) at 8eb27cc: `logprobs` is old, `log_probs2` a second pass,
`new_response_mask` what counts; a file a domain and step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posttrain_watchdog.model import TokenBatch
from posttrain_watchdog.sources.samples import ABSENT, Sample
from posttrain_watchdog.sources.tokens import native

_ENGINE = ("infer_logprobs", "rollout_logprobs")


def recognises(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("logprobs"), list) and "new_response_mask" in record


def sample(record: Mapping[str, Any]) -> Sample | None:
    """One response, whichever sides its record has."""
    mask = record.get("new_response_mask")
    if not isinstance(mask, list):
        return None
    return Sample(
        record.get("step", record.get("global_step")),
        record.get("reward", ABSENT),
        length=len(mask) - mask.count(0),
        prompt=record.get("prompt"),
        text=record.get("response"),
    )


def read(lines: Sequence[bytes]) -> TokenBatch:
    """Complete lines as one batch. Raises ValueError where a line is no JSON object."""
    found = []
    for record in native.records(lines):
        engine = next((record[name] for name in _ENGINE if isinstance(record.get(name), list)), None)
        if engine is None:
            continue
        found.append(
            {
                "step": record.get("step", record.get("global_step")),
                "engine_logprobs": engine,
                "trainer_logprobs": record["logprobs"],
                "current_logprobs": record.get("log_probs2"),
                "reference_logprobs": record.get("ref_logprobs"),
                "mask": record["new_response_mask"],
                "reward": record.get("reward"),
            }
        )
    return native.from_records(found)
