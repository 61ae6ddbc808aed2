"""verl's rollout_data_dir: prompts and answers as text, no tokens.

Promises: is known by content, so that a generated text in it is never read as a line of a log; gives no tokens,
because there are none. Source: verl 0.4 to 0.8, trainer/ppo/ray_trainer.py (_dump_generations).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ONE_SIDED = True


def recognises(record: Mapping[str, Any]) -> bool:
    return all(isinstance(record.get(name), str) for name in ("input", "output")) and {"score", "step"} <= set(record)
