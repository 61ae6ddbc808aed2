"""Dynamic sampling cannot fill the batch: nearly all groups are thrown away for having no spread.

Guards: the number of generation batches a step needs must climb, not only fluctuate: the last three steps above all
before them, the last at least three batches above the start.
"""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.incidents.finding import AGAINST, STATED, STRONG, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History

_START = 3
_LEAST = 7


def judge(history: History) -> Finding | None:
    said = history.events("sampling_exhausted")
    at, needed = history.trainer("generation_batches").finite()
    witnesses: dict[str, float] = {}
    evidence: dict[str, float | str] = {}
    first: float | None = None
    if said and (history.step is None or said[-1].step is None or history.step - said[-1].step <= _LEAST):
        witnesses["the sampler says so"] = STATED
        evidence["line"] = said[-1].text[:160]
        first = said[-1].step
    if len(needed) >= _LEAST:
        start = float(np.median(needed[: max(_START, len(needed) // 4)]))
        recent = needed[-3:]
        before = float(needed[:-3].max())
        climbing = recent.min() >= before < needed[-1] and bool((np.diff(needed[-7:]) >= 0).all())
        if climbing and float(np.median(recent)) >= 2 * max(start, 1) and needed[-1] >= start + 3:
            witnesses["needs ever more generation batches"] = STRONG
        if witnesses:
            last = max(needed[-1], *(float(e.labels.get("batches", 0)) for e in said), 0.0)
            evidence["generation batches"] = f"{start:g} -> {last:g}"
            higher = np.flatnonzero(needed > needed[: max(_START, len(needed) // 4)].max())
            first = float(at[higher[0]]) if len(higher) else first
    if not witnesses:
        return None
    reward = history.trainer("reward_mean").last
    if np.isfinite(reward):
        evidence["reward_mean"] = float(reward)
        if reward < 0.1 or reward > 0.9:
            witnesses["too hard" if reward < 0.1 else "too easy"] = SUPPORT
        elif 0.2 < reward < 0.8 and not said:
            witnesses["neither too hard nor too easy"] = AGAINST
    generation = history.trainer("generation_seconds")
    if len(generation) and len(needed):
        evidence["seconds per generation batch"] = round(float(generation.last / max(needed[-1], 1)), 1)
    return Finding(
        summary="dynamic sampling cannot fill the batch"
        + (f": {evidence['generation batches']} generation batches a step" if "generation batches" in evidence else ""),
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            "difficulty of the prompts: solved by none or by all; mean reward of what is thrown away",
            "the limit of generation batches, and samples per group",
            "the reward: does it still tell completions apart",
        ),
        first_step=None if first is None else int(first),
    )
