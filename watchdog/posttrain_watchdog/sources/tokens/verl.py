"""verl's rollout_data_dir: prompts and answers as text, with their scores; no tokens.

Promises: is known by content, so that a generated text in it is never read as a line of a log; gives no tokens and
no lengths, because there are none. `validation_data_dir` is written in the same form: a folder whose name says so is
left out. Source: verl 0.4 to 0.9, trainer/ppo/ray_trainer.py (_dump_generations; N.jsonl is written anew, mode "w").
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posttrain_watchdog.sources.samples import Sample, of_evaluation

ONE_SIDED = True


def recognises(record: Mapping[str, Any]) -> bool:
    return all(isinstance(record.get(name), str) for name in ("input", "output")) and {"score", "step"} <= set(record)


def sample(record: Mapping[str, Any], path: Path | None = None) -> Sample | None:
    """One completion; None for one of a validation."""
    if not recognises(record) or (path is not None and of_evaluation(path.parent.name)):
        return None
    return Sample(record["step"], record["score"], prompt=record["input"], text=record["output"])
