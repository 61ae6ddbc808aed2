"""AReaL's rollout dumps: prompts and completions as text, with reward and lengths; no tokens.

Promises: is known by content, so that a generated text in it is never read as a line of a log; gives no tokens. The
step is the newest weight version that a completion was sampled with. `eval-rollout` beside `rollout` is left out.
Source: AReaL infra/workflow_executor.py (_dump_trajectory) at 4aef98d: <version>/<task_id>.jsonl, a task is a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posttrain_watchdog.sources.samples import Sample, of_evaluation

ONE_SIDED = True


def recognises(record: Mapping[str, Any]) -> bool:
    return {"prompt", "completion", "seqlen", "head_version", "tail_version"} <= set(record)


def sample(record: Mapping[str, Any], path: Path | None = None) -> Sample | None:
    """One completion; None for one of an evaluation."""
    if not recognises(record) or (path is not None and of_evaluation(path.parent.parent.name)):
        return None
    whole, prompt = record["seqlen"], record.get("prompt_len")
    known = isinstance(whole, int) and isinstance(prompt, int)
    return Sample(
        record["tail_version"],
        record.get("reward"),
        length=whole - prompt if known else None,
        prompt=record.get("task_id"),
        text=record["completion"],
    )
