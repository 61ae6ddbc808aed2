"""Expected off-policyness: the trainer has moved since the rollout (asynchronous, or several updates a rollout)."""

from __future__ import annotations

from posttrain_watchdog.consistency.dense import dense_finding
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "how many updates lie between rollout and training: steps per generation, num_iterations, asynchronous rollouts",
    "weight version of the samples against the trainer's: is the lag the one that was configured",
    "is truncated importance sampling on, and what fraction does it clip",
)


def judge(window: Window) -> Finding | None:
    """Both sides are true distributions, apart since the first update, and not growing apart: a bounded lag."""
    return dense_finding(window, "policy_lag", CHECKS)
