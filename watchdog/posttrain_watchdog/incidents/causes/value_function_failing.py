"""The critic explains nothing, or explodes, while the policy is as before.

Guards: a young critic explains less than nothing for a while, so in the first 20 steps it must also get worse.
"""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.incidents.finding import STRONG, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.statistics import RECENT, baseline, departure, theil_sen
from posttrain_watchdog.incidents.track import Track

_WARM = 20


def judge(history: History) -> Finding | None:
    witnesses: dict[str, float] = {}
    evidence: dict[str, float | str] = {}
    first: float | None = None
    at, explained = history.trainer("value_explained_variance").finite()
    if len(explained) >= RECENT:
        last = explained[-RECENT:]
        fell = float(np.median(explained[:3]) - np.median(explained[-3:]))
        worse = theil_sen(at[-2 * RECENT :], explained[-2 * RECENT :]) < 0 and fell > 0.5
        warm = at[-1] > _WARM and len(explained) > RECENT + 3
        if (last < -1).all() and (worse or warm):
            witnesses["explained variance below -1 for 5 steps"] = STRONG
        elif warm and float(np.median(last)) < -0.5 and (last < -0.25).all():
            witnesses["explained variance below -0.5"] = STRONG
        if witnesses:
            if worse:
                witnesses["and falling"] = SUPPORT
            evidence["explained variance"] = f"{explained[0]:g} -> {explained[-1]:g}"
            bad = np.flatnonzero(explained >= -0.5)
            first = float(at[bad[-1] + 1]) if len(bad) else float(at[0])
    loss = _times(history.trainer("value_loss"))
    if loss is not None and loss >= 10:
        witnesses["value loss ten times its start"] = STRONG
        evidence["value loss"] = f"{loss:.0f} times its start"
        at, values = history.trainer("value_loss").finite()
        first = departure(at, values) if first is None else first
    if not witnesses:
        return None
    for labels, track in history.tracks("posttrain_trainer_value"):
        key = dict(labels).get("key", "")
        if "critic" in key and "grad" in key and len(track) >= 3:
            read = track.finite()[1]
            times = float(np.median(read[-3:]) / max(np.median(read[:3]), 1e-12))
            evidence["critic gradient norm"] = f"{read[0]:g} -> {read[-1]:g}"
            if times >= 1.5:
                witnesses["the critic's gradient grows"] = SUPPORT
    policy = _times(history.trainer("grad_norm"))
    if policy is not None and 0.5 < policy < 2:
        witnesses["the policy's gradient is as before"] = SUPPORT
        evidence["policy gradient norm"] = history.trainer("grad_norm").last
    for short in ("mult_prob_error", "mismatch_kl_k3"):
        if len(history.trainer(short)):
            evidence[short] = history.trainer(short).last
    return Finding(
        summary="the critic fails: "
        + "; ".join(f"{k} {v}" for k, v in evidence.items() if "critic" in k or "v" in k[:10]),
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            "normalisation and clipping of the value loss, scale of the rewards",
            "learning rate and warm-up of the critic",
            "mask and last-token index of the values: padding, shifted by one",
        ),
        first_step=None if first is None else int(first),
    )


def _times(track: Track) -> float | None:
    """Present level over the start; None without both."""
    base = baseline(track)
    read = track.finite()[1]
    if base is None or base.middle <= 0 or len(read) < RECENT:
        return None
    return float(np.median(np.abs(read[-RECENT:]))) / base.middle
