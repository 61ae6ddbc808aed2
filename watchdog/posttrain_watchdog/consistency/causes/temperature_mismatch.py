"""Engine and trainer use different temperatures, and the engine really sampled at its own."""

from __future__ import annotations

import math

from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.tempering import identity_figures, tempering
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "temperature in the rollout's sampling parameters against the trainer's (does it divide its logits by it)",
    "defaults: generation_config.json of the model, and per-request overrides in the client",
    "one request at temperature 1 with the trainer at 1: the offset must vanish",
)


def judge(window: Window) -> Finding | None:
    """d has the shape of a temperature, and the tokens were drawn from what the engine reports."""
    fit = tempering(window)
    if fit is None or fit.sampled_by_trainer >= 0.0:
        return None
    figures = identity_figures(window)
    ratio = 1.0 - fit.slope
    known = window.batch.temperature
    ours = float(known[known > 0].mean()) if known is not None and (known > 0).any() else math.nan
    engine = f", so the engine's is {ours / ratio:.2f}" if math.isfinite(ours) and ratio > 0 else ""
    return Finding(
        "temperature_mismatch",
        fit.p,
        fit.explained,
        f"the trainer's temperature is {ratio:.2f} times the engine's{engine} ({fit.explained:.0%} of the "
        f"difference), and the tokens were drawn at the engine's (log-likelihood ratio {fit.sampled_by_trainer:+.1f})",
        {
            "slope": fit.slope,
            "slope_stderr": fit.error,
            "temperature_ratio": ratio,
            "sampled_by_trainer_log_ratio": fit.sampled_by_trainer,
            **figures,
        },
        CHECKS,
        len(window.d),
        fit.per_step,
        claims_differences=True,
        p_always=fit.p_sampled,
    )
