"""The groups have no spread of reward, so advantages and gradients vanish.

Guards: a loss of exactly 0 alone is normal (ratio 1, advantages that sum to 0). Small batches are all tied by chance
now and then: the run of tied steps must be longer than chance makes it, given how often groups were tied before and
how many groups a step has (read from the granularity of the fraction).
"""

from __future__ import annotations

import math

import numpy as np

from posttrain_watchdog.incidents.finding import AGAINST, SUPPORT, Finding, of_test
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.statistics import last_run

_TIED = 0.95
_LEAST = 3
_CHANCE = 0.01
_VANISHED = 1e-8


def judge(history: History) -> Finding | None:
    tied = history.trainer("zero_std_fraction")
    at, read = tied.finite()
    by_fraction = len(read) > 0
    if not by_fraction:
        # without the fraction a spread of exactly 0 says the same, of rewards or of advantages
        at, read = history.trainer("reward_std").finite()
        read = (read == 0.0).astype(float)
    if not len(read):
        at, most = history.trainer("advantage_max").finite()
        _, least = history.trainer("advantage_min").finite()
        read = ((most == 0) & (least == 0)).astype(float) if len(most) == len(least) else np.zeros(len(most))
    start, length = last_run(read >= _TIED, within=2)
    gradient = history.trainer("grad_norm")
    gradients = dict(zip(gradient.at, gradient.read, strict=True))
    if length < _LEAST:
        return _vanished_gradient(history)
    steps = at[start : start + length]
    # every earlier step could have begun such a run
    chance = min(1.0, (start + 1) * _chance_of_a_tied_step(read[:start]) ** length)
    if chance > _CHANCE:
        return None
    witnesses = {f"{length} steps in a row without any spread": of_test(chance)}
    zero = [gradients[s] for s in steps if s in gradients and math.isfinite(gradients[s])]
    if zero:
        witnesses["gradient"] = SUPPORT if max(map(abs, zero)) < _VANISHED else AGAINST
    evidence: dict[str, float | str] = {
        "tied steps in a row": float(length),
        "probability by chance": float(f"{chance:.2g}"),
        "zero_std_fraction" if by_fraction else "reward_std": float(tied.last if by_fraction else 0.0),
    }
    for short in ("reward_std", "grad_norm", "reward_mean", "learning_rate"):
        if len(history.trainer(short)):
            evidence[short] = history.trainer(short).last
    reward = history.trainer("reward_mean").last
    side = "" if not math.isfinite(reward) else f", mean reward {reward:g}"
    return Finding(
        summary=f"all groups tied for {length} steps{side}: advantages are 0",
        witnesses=witnesses,
        evidence=evidence,
        first_checks=_CHECKS,
        first_step=int(steps[0]),
    )


_CHECKS = (
    "read one group: are its completions identical (sampling off, same seed), or only its rewards",
    "group order and number of generations: does a group really hold completions of one prompt",
    "difficulty: all solved or none solved; filter prompts or change the reward",
)


def _chance_of_a_tied_step(before: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """Upper estimate of the probability that all groups of a step tie, from the steps before.

    Groups tie one by one with probability q (mean of the fraction, with one pseudo-step at 1/4); a step with g groups
    ties with q^g. g is read from the fraction's granularity; without a history g = 2 is assumed, the least there is.
    """
    q = (float(before.sum()) + 0.25) / (len(before) + 1)
    between = before[(before > 0) & (before < 1)]
    groups = 2.0 if not len(between) else max(2.0, round(1 / float(np.minimum(between, 1 - between).min())))
    observed = (float((before >= _TIED).sum()) + 0.1) / (len(before) + 1)
    return float(np.clip(max(q**groups, observed), 0.01, 0.9))


def _vanished_gradient(history: History) -> Finding | None:
    """Rewards differ within the groups and still nothing reaches the weights."""
    at, gradient = history.trainer("grad_norm").finite()
    start, length = last_run(np.abs(gradient) < _VANISHED, within=2)
    spread = dict(zip(*history.trainer("reward_std").finite(), strict=True))
    steps = [s for s in at[start : start + length] if spread.get(s, 0.0) > 0]
    if length < _LEAST or len(steps) < _LEAST:
        return None
    rate = history.trainer("learning_rate").last
    return Finding(
        summary=f"gradient is 0 for {length} steps although rewards differ (std {spread[steps[-1]]:g})",
        witnesses={"gradient exactly 0": 10.0, "reward spread is there": SUPPORT},
        evidence={"grad_norm": float(gradient[-1]), "reward_std": float(spread[steps[-1]]), "learning_rate": rate},
        first_checks=(
            "are the parameters frozen, or the optimizer given other ones",
            "do advantages reach the loss: group normalisation, masks, clipping of all tokens",
            "weights of the importance correction: is everything masked",
        ),
        first_step=int(steps[0]),
    )
