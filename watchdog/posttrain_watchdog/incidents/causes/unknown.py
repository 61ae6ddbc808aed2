"""Trainer and engine disagree severely by the trainer's own figures, and no tokens are there to say why.

Guards: limits are those at which every framework calls it a fault, far above kernels and number formats; one figure
must say so for several steps, or two at once. Where tokens are compared, the token statistics speak instead.
"""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.incidents.finding import STRONG, Finding
from posttrain_watchdog.incidents.history import History

_SEVERE = {
    # short name: (limit, direction, what is healthy)
    "probability_correlation": (0.9, -1, "healthy > 0.99"),
    "probability_difference_mean": (0.03, 1, "healthy < 0.005"),
    "mult_prob_error": (1.2, 1, "healthy < 1.05"),
    "mismatch_kl_k3": (0.1, 1, "healthy < 0.001 dense, 0.01 mixture of experts"),
    "logprob_difference_abs_mean": (0.25, 1, "healthy < 0.03"),
    "log_perplexity_gap_abs": (0.1, 1, "healthy < 0.01"),
}
_STEPS = 3


def judge(history: History) -> Finding | None:
    witnesses: dict[str, float] = {}
    evidence: dict[str, float | str] = {}
    first: float | None = None
    for short, (limit, direction, healthy) in _SEVERE.items():
        at, read = history.trainer(short).finite()
        if not len(read):
            continue
        severe = direction * np.abs(read) > direction * limit
        recent = severe[-_STEPS:]
        if not recent.all():
            continue
        witnesses[f"{short} {read[-1]:.3g}"] = STRONG
        evidence[short] = f"{read[-1]:.3g} ({healthy})"
        onset = at[len(severe) - int(np.argmin(severe[::-1])) if not severe.all() else 0]
        first = onset if first is None else min(first, onset)
    if not witnesses:
        return None
    steps = int(max(len(history.trainer(s)) for s in _SEVERE))
    if len(witnesses) < 2 and steps < _STEPS:
        return None
    if history.track("posttrain_tokens_compared").last > 0:
        return None
    evidence["could not be told"] = "no tokens of both sides: log names the size of the fault, not its kind"
    return Finding(
        summary="trainer and engine disagree severely: "
        + "; ".join(f"{k} {v}" for k, v in evidence.items() if k in _SEVERE),
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            "the same prompt through a plain forward pass and through the engine: which side is wrong",
            "attention backend of both sides: does it support this model (sinks, sliding windows)",
            "write a token dump of one step and run `posttrain-watchdog diagnose` on it",
        ),
        first_step=None if first is None else int(first),
    )
