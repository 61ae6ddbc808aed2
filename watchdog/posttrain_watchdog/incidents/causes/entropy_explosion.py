"""The policy drifts to noise: entropy climbs to a multiple of the run's own start and stays there, reward follows.

Guards: the multiple counts only above 0.7 nats (a near-deterministic policy that loosens is no noise) and over several
points; a reward that still rises speaks against it. Truncation and length are reported, so that nobody blames them.
"""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.incidents.finding import AGAINST, STRONG, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.statistics import baseline, spread, tail_run

_TIMES = 2.5
_FLOOR = 0.7
_POINTS = 3


def judge(history: History) -> Finding | None:
    track = history.trainer("entropy")
    base = baseline(track)
    at, read = track.finite()
    if base is None or base.middle <= 0 or len(read) < base.points + _POINTS:
        return None
    recent = float(np.median(read[-_POINTS:]))
    limit = max(_TIMES * base.middle, base.high + 4 * base.spread, _FLOOR)
    if recent < limit or read[-_POINTS:].min() < 0.8 * limit:
        return None
    above = tail_run(read > base.middle + 4 * max(base.spread, 0.02 * base.middle))
    onset = at[-above]
    times = recent / base.middle
    witnesses = {f"entropy {times:.1f} times its start": STRONG}
    if times >= 2 * _TIMES:
        witnesses["far beyond"] = SUPPORT
    evidence: dict[str, float | str] = {"entropy": round(recent, 3), "entropy at the start": round(base.middle, 3)}
    fell = _reward_fell(history, onset)
    if fell is not None:
        change, significant = fell
        evidence["reward change since"] = round(change, 4)
        if significant:
            witnesses["reward falls with it" if change < 0 else "reward rises"] = STRONG if change < 0 else AGAINST
    for short in ("completion_length_mean", "truncated_fraction"):
        if len(history.trainer(short)):
            evidence[short] = history.trainer(short).last
    return Finding(
        summary=f"entropy went from {base.middle:.3g} to {recent:.3g} nats since step {onset:g}"
        + (f"; reward changed by {fell[0]:+.3g}" if fell else ""),
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            "entropy bonus, clip-higher and loss type: what pushes the entropy up",
            "KL to the reference model and learning rate since that step",
            "sample the engine alone at temperature 0: is the policy broken, or the engine",
        ),
        first_step=int(onset),
    )


def _reward_fell(history: History, onset: float) -> tuple[float, bool] | None:
    """(change of the reward since `onset`, whether it is beyond noise); None if there is no reward on both sides."""
    at, read = history.trainer("reward_mean").finite()
    before, after = read[at < onset][-10:], read[-_POINTS:]
    if len(before) < _POINTS or at[-1] < onset:
        return None
    change = float(np.median(after) - np.median(before))
    noise = max(spread(before), 0.02 * abs(float(np.median(before))))
    return change, abs(change) > 3 * noise
