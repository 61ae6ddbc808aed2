"""A weight that sums over long sequences looks abnormal while the tokens are fine.

With per-token k3 and T tokens the variance of a sequence's log ratio is about v = 2 T k3, and a mean that masks or cuts
at c falls with v by itself (0.73 at v = 1, 0.33 at v = 4, for c = 3). Logs often hold only mean and maximum of |d|;
they bound k3 between pi/4 mean^2 (no tail) and mean x max / 2 (all in the tail).
Guards: tokens must be normal by a figure of their own; a mean that falls step by step is no artefact.
"""

from __future__ import annotations

import math

from posttrain_watchdog.incidents.finding import AGAINST, STRONG, STRONGLY_AGAINST, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.statistics import recent_median, slope

_LOW = 0.8
_CAP = 3.0
_NORMAL = {"logprob_difference_abs_mean": 0.03, "mismatch_kl_k3": 5e-3, "probability_difference_mean": 0.01}


def judge(history: History) -> Finding | None:
    short = next((s for s in ("is_weight_mean", "is_ratio_mean") if len(history.trainer(s))), None)
    if short is None:
        return None
    weight = recent_median(history.trainer(short))
    if not 0 <= weight < _LOW:
        return None
    normal = {}
    for name, limit in _NORMAL.items():
        value = abs(recent_median(history.trainer(name)))
        if math.isfinite(value):
            normal[name] = (value, limit)
    if not normal or any(value > limit for value, limit in normal.values()):
        return None
    length = recent_median(history.trainer("completion_length_mean"))
    evidence: dict[str, float | str] = {short: round(weight, 4)}
    evidence |= {name: value for name, (value, _) in normal.items()}
    witnesses = {"tokens are normal": STRONG}
    low, high = _k3_bounds(history)
    if math.isfinite(length) and math.isfinite(high):
        evidence["mean completion length"] = length
        expected = masked_mean(2 * length * high), truncated_mean(2 * length * low)
        evidence["expected from length"] = f"{expected[0]:.2f} to {expected[1]:.2f}"
        fits = expected[0] - 0.1 <= weight <= expected[1] + 0.1
        witnesses["length explains the figure" if fits else "length does not explain it"] = SUPPORT if fits else AGAINST
    lowest, widest = (
        history.trainer(short.replace("mean", "min")).last,
        history.trainer("logprob_difference_abs_max").last,
    )
    if math.isfinite(lowest) and math.isfinite(widest) and lowest < 0.5 * math.exp(-widest):
        witnesses["smaller than any token's ratio can be: summed over a sequence, or masked"] = STRONG
        evidence["smallest weight"] = f"{lowest:g}, while no token is below {math.exp(-widest):.2g}"
    at, read = history.trainer(short).finite()
    if len(read) >= 10:
        trend = slope(at[-60:], read[-60:])
        if trend.p < 0.005 and abs(trend.per_step) * (at[-1] - at[-60:][0]) > 0.2:
            witnesses["it moves with the steps"] = STRONGLY_AGAINST
    return Finding(
        summary=f"sequence weight {weight:.3g} over {length:g} tokens, per-token difference normal",
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            "mode of the importance correction: token or sequence, mask or truncate, and its cap",
            "token-level ratio and the share of masked sequences, before truncation",
            "gradient norm under a token-level or geometric-mean correction",
        ),
        first_step=int(at[0]) if len(at) else None,
    )


def masked_mean(variance: float, cap: float = _CAP) -> float:
    """E[r; r < cap] of a log-normal ratio with E[r] = 1 and that variance of log r."""
    if variance <= 0:
        return 1.0
    sd = math.sqrt(variance)
    return 0.5 * (1 + math.erf((math.log(cap) - variance / 2) / sd / math.sqrt(2)))


def truncated_mean(variance: float, cap: float = _CAP) -> float:
    """E[min(r, cap)] of the same."""
    if variance <= 0:
        return 1.0
    beyond = (math.log(cap) + variance / 2) / math.sqrt(variance)
    return masked_mean(variance, cap) + cap * 0.5 * math.erfc(beyond / math.sqrt(2))


def _k3_bounds(history: History) -> tuple[float, float]:
    """Least and most per-token k3 that the logged figures allow; NaN where they say nothing."""
    direct = recent_median(history.trainer("mismatch_kl_k3"))
    if math.isfinite(direct):
        return direct, direct
    mean = recent_median(history.trainer("logprob_difference_abs_mean"))
    most = recent_median(history.trainer("logprob_difference_abs_max"))
    return math.pi / 4 * mean**2, (mean * most / 2 if math.isfinite(most) else 10 * mean**2)
