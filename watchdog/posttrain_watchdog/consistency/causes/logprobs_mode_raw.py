"""The engine reports logprobs before temperature; the tokens were sampled after it."""

from __future__ import annotations

from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.tempering import identity_figures, tempering
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "logprobs mode of every engine is processed_logprobs (vLLM: --logprobs-mode; the default is raw_logprobs)",
    "the inference output carries prompt_logprobs where the trainer expects them",
    "how the trainer builds completion_mask",
)


def judge(window: Window) -> Finding | None:
    """d has the shape of a temperature, and the tokens were drawn from the trainer's distribution."""
    fit = tempering(window)
    if fit is None or fit.sampled_by_trainer <= 0.0:
        return None
    figures = identity_figures(window)
    temperature = 1.0 - fit.slope
    return Finding(
        "logprobs_mode_raw",
        fit.p,
        fit.explained,
        f"the engine's logprobs are the trainer's at temperature 1/{temperature:.2f} of its own "
        f"({fit.explained:.0%} of the difference), yet the tokens were drawn from the trainer's distribution "
        f"(log-likelihood ratio {fit.sampled_by_trainer:+.1f}): raw logprobs, sampling at temperature "
        f"{temperature:.2f}",
        {
            "slope": fit.slope,
            "slope_stderr": fit.error,
            "temperature": temperature,
            "sampled_by_trainer_log_ratio": fit.sampled_by_trainer,
            **figures,
        },
        CHECKS,
        len(window.d),
        fit.per_step,
        claims_differences=True,
        p_always=fit.p_sampled,
    )
