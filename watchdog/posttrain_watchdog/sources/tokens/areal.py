"""AReaL's rollout dumps: prompts and completions as text, no tokens.

Promises: is known by content, so that a generated text in it is never read as a line of a log; gives no tokens.
Source: AReaL rollout.dump_to_file (core/workflow_executor.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ONE_SIDED = True


def recognises(record: Mapping[str, Any]) -> bool:
    return {"prompt", "completion", "seqlen", "head_version", "tail_version"} <= set(record)
