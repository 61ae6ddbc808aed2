"""One or a few steps far out of line, and back.

Guards: ten times the largest deviation seen before (a record, not a z-score: gradients are heavy-tailed), at least
twenty spreads, and a size that matters; the steps after it must be ordinary again. A gradient norm alone is not enough.
"""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.incidents.finding import STRONG, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.statistics import spread
from posttrain_watchdog.incidents.track import Track

_FIGURES = {
    "kl_ref": 0.1,
    "ppo_kl": 0.1,
    "policy_loss": 1.0,
    "loss": 1.0,
    "value_loss": 1.0,
    "mismatch_kl_k3": 0.05,
    "logprob_difference_abs_mean": 0.05,
    "grad_norm": 1.0,
}
"""Short name -> deviation from which it matters."""
_BEFORE = 8
_REMEMBERED = 50
_LONGEST = 3


def judge(history: History) -> Finding | None:
    spikes: dict[str, tuple[float, float, float, float]] = {}
    for short, floor in _FIGURES.items():
        found = _spike(history.trainer(short), floor)
        if found is not None:
            spikes[short] = found
    telling = {s: f for s, f in spikes.items() if s != "grad_norm"}
    if not telling:
        return None
    main = max(telling, key=lambda s: telling[s][3])
    step, value, usual, times = telling[main]
    together = [s for s, f in spikes.items() if abs(f[0] - step) <= 1]
    witnesses = {f"{main} {times:.0f} times beyond every step before": STRONG}
    if times >= 100:
        witnesses["far beyond"] = STRONG
    if len(together) > 1:
        witnesses["in several figures at once"] = SUPPORT if "grad_norm" in together and len(together) == 2 else STRONG
    evidence: dict[str, float | str] = {
        s: f"{spikes[s][1]:g} at step {spikes[s][0]:g}, {spikes[s][2]:.3g} before" for s in together
    }
    evidence["recovered"] = "the next step is ordinary again"
    return Finding(
        summary=f"{main} {value:g} at step {step:g} against {usual:.3g} before; recovered",
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            "the token or sequence behind it: the most extreme ratio of that batch",
            "estimator: a clipped or bounded log ratio instead of exp without a bound",
            "gradient clipping of that step, and whether the reward went on",
        ),
        first_step=int(step),
    )


def _spike(track: Track, floor: float) -> tuple[float, float, float, float] | None:
    """(step, value, usual value, deviation in records before) of the last spike that is over; None if there is none."""
    at, read = track.finite()
    n = len(read)
    if n <= _BEFORE:
        return None
    start = max(_BEFORE, n - _REMEMBERED)
    around = np.abs(read[-2 * _REMEMBERED :] - np.median(read[-2 * _REMEMBERED :]))
    # ten times a record is at least five times what is ordinary around it: most steps end here
    far = around[start - n : -1] >= max(floor / 2, 5 * float(np.median(around)))
    for i in (start + np.flatnonzero(far))[::-1].tolist():
        before = read[max(0, i - _REMEMBERED) : i]
        usual = float(np.median(before))
        record = float(np.abs(before - usual).max())
        deviation = abs(float(read[i]) - usual)
        if deviation < max(floor, 10 * record, 20 * spread(before)):
            continue
        after = np.abs(read[i + 1 : i + 1 + _LONGEST] - usual)
        if after.min() <= max(record, floor / 10) and (n - i <= _LONGEST or np.median(after) <= max(3 * record, floor)):
            return float(at[i]), float(read[i]), usual, deviation / max(record, floor / 100)
    return None
