"""Most completions hit the length limit.

Guards: several steps in a row; where the figures contradict one another (all "cut", yet of different lengths) it is the
end token, not the limit: `eos_mismatch`. A run whose numbers are no longer finite writes to the limit as a consequence.
"""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.incidents.finding import AGAINST, STRONG, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.statistics import RECENT, last_run

_MOST = 0.9
_LEAST = 5


def judge(history: History) -> Finding | None:
    at, cut = history.trainer("truncated_fraction").finite()
    start, length = last_run(cut >= _MOST, within=2)
    if length < _LEAST or contradicts(history, at[start : start + length]):
        return None
    witnesses = {f"{length} steps with nearly all cut": STRONG}
    if length >= 3 * _LEAST:
        witnesses["it lasts"] = SUPPORT
    evidence: dict[str, float | str] = {"truncated_fraction": round(float(cut[-1]), 3), "steps": float(length)}
    longest = history.trainer("completion_length_max").finite()[1][-RECENT:]
    mean = history.trainer("completion_length_mean").last
    if len(longest) and np.ptp(longest) == 0:
        evidence["limit"] = f"{longest[-1]:g} tokens, mean {mean:g}"
    if history.trainer("terminated_length_mean").last == 0:
        evidence["terminated_length_mean"] = "0: none ended by itself"
    if any(history.trainer(s).nonfinite and not np.isfinite(history.trainer(s).last) for s in ("grad_norm", "loss")):
        witnesses["the trainer's numbers are not finite"] = AGAINST
    reward = history.trainer("reward_mean")
    if len(reward):
        evidence["reward_mean"] = reward.last
    return Finding(
        summary=f"{cut[-1]:.0%} of the completions are cut at the length limit for {length} steps",
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            "the length limit against what the task needs",
            "read three completions to their end: reasoning, repetition, or no end token",
            "how truncated samples count: masked, punished, or trained on as if they were whole",
        ),
        first_step=int(at[start]),
    )


def contradicts(
    history: History, steps: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> list[tuple[float, float]]:
    """(mean, longest) of the steps whose lengths cannot be those of cut completions; empty if they can.

    Cut completions have the limit's length: so the longest is the same in every step that has some, and the mean is at
    least (share cut) x (longest).
    """
    longest = dict(zip(*history.trainer("completion_length_max").finite(), strict=True))
    mean = dict(zip(*history.trainer("completion_length_mean").finite(), strict=True))
    cut = dict(zip(*history.trainer("truncated_fraction").finite(), strict=True))
    known = [s for s in steps if s in longest and s in mean and s in cut and longest[s] > 0]
    lengths = [longest[s] for s in known]
    if len(known) >= _LEAST and len(set(lengths)) >= max(3, len(known) / 2) and min(lengths) < 0.95 * max(lengths):
        return [(mean[s], longest[s]) for s in known]
    off = [(mean[s], longest[s]) for s in known if mean[s] < 0.9 * cut[s] * longest[s]]
    return off if len(off) > len(known) / 2 else []
