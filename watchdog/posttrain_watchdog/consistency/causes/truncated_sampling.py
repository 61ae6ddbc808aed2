"""Top-k, top-p or min-p: the engine's logprobs are renormalised over what it kept, the trainer's are not."""

from __future__ import annotations

import math

from posttrain_watchdog.consistency.chance import clustered_mean, normal_tail
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.truncation import one_sided
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "sampling parameters of the rollouts: top_p, top_k, min_p (a model's generation_config may set them)",
    "sample with top_p=1, top_k=-1, or apply the same truncation in the trainer",
    "logprobs mode: processed logprobs are renormalised over what truncation kept",
)


def judge(window: Window) -> Finding | None:
    """d <= 0 for every token, for likely ones too; or, without any d, trainer logprob + entropy above 0 on average."""
    return _one_sided(window) if not window.quiet else _from_entropy(window)


def _one_sided(window: Window) -> Finding | None:
    one = one_sided(window)
    if one is None:
        return None
    exact = float((window.s == 0.0).mean())
    return Finding(
        "truncated_sampling",
        one.p,
        # what a best candidate's logprob explains as well is left to logprobs_wrong_token
        one.explained * (1.0 - one.peaked_at_floor * one.best_candidate),
        f"the trainer gives {one.negative} of {one.negative + one.positive} differing tokens less than the engine; "
        f"mean ratio {one.ratio_mean:.3f}, so the engine kept {one.ratio_mean:.0%} of the mass; "
        f"{exact:.0%} of its logprobs are exactly 0",
        {
            "ratio_mean": one.ratio_mean,
            "negative": one.negative,
            "positive": one.positive,
            "engine_exactly_zero": exact,
        },
        CHECKS,
        len(window.d),
        one.per_step,
        claims_differences=True,
    )


def _from_entropy(window: Window) -> Finding | None:
    """Raw logprobs of a truncated sampler agree with the trainer's, but the tokens are likelier than chance.

    E[log q] = -H(q) for tokens drawn from q. The mean has a long tail below that a small sample has not seen, so
    this waits for 2,000 tokens, corrects z for skewness (Johnson 1978), and asks for an effect above the noise of
    an entropy kernel: a hundredth of a nat and of the entropy.
    """
    x = window.centred
    if x is None or len(x) < 2000:
        return None
    mean, error = clustered_mean(x, window.of)
    entropy = float((x - window.t).mean())
    if not math.isfinite(error) or error <= 0.0 or mean < 0.01 * max(1.0, entropy):
        return None
    spread = x - x.mean()
    skew = float((spread**3).mean() / max((spread**2).mean() ** 1.5, 1e-300))
    z = mean / error
    corrected = z + skew / (6.0 * math.sqrt(len(x))) * (1.0 + 2.0 * z * z)
    if corrected <= 0.0:
        return None
    return Finding(
        "truncated_sampling",
        normal_tail(corrected),
        1.0,
        f"sampled tokens are likelier than the trainer's distribution allows: mean(logprob + entropy) = {mean:+.3f} "
        f"+- {error:.3f} while both sides report the same logprobs",
        {"logprob_plus_entropy": mean, "standard_error": error, "entropy": entropy},
        CHECKS,
        len(x),
        window.per_step(x - mean / 2.0, window.at_step),
    )
