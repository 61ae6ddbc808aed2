"""The end token that the engine stops at is not the one the trainer knows: completions that ended count as cut.

Guards: it is arithmetic, not a level: cut completions all have the limit's length, so the mean cannot lie below
(share cut) x (longest), and the longest cannot change from step to step; several steps in a row.
"""

from __future__ import annotations

from posttrain_watchdog.incidents.causes.completions_truncated import contradicts
from posttrain_watchdog.incidents.finding import STRONG, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.statistics import last_run

_MOST = 0.5
_LEAST = 3


def judge(history: History) -> Finding | None:
    at, cut = history.trainer("truncated_fraction").finite()
    start, length = last_run(cut >= _MOST, within=2)
    steps = at[start : start + length]
    off = contradicts(history, steps)
    if length < _LEAST or len(off) < _LEAST:
        return None
    mean, longest = off[-1]
    witnesses = {"cut completions of different lengths": STRONG, f"for {len(off)} steps": SUPPORT}
    longests = [most for _, most in off]
    if mean < 0.9 * longest:
        why = f"their mean length is {mean:g} of at most {longest:g}"
    else:
        why = f"the longest is {min(longests):g} in one step and {max(longests):g} in another"
    ended = history.trainer("terminated_length_mean").last
    if ended == 0:
        witnesses["none counts as ended"] = STRONG
    return Finding(
        summary=f"{cut[start + length - 1]:.0%} count as cut at the limit, but {why}",
        witnesses=witnesses,
        evidence={
            "truncated_fraction": float(cut[start + length - 1]),
            "completion_length_mean": mean,
            "completion_length_max": longest,
            "steps": float(len(off)),
        },
        first_checks=(
            "all end tokens of generation_config.json against the one the trainer takes from the tokenizer",
            "is the pad token the end token: masks then drop it",
            "the last token of a completion that stopped: which id is it, and does it count",
        ),
        first_step=int(steps[0]),
    )
