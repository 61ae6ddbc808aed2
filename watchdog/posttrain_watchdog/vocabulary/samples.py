"""What the daemon counts in dumps of rollouts.

Rewards and lengths of a dump have the trainer's names (vocabulary/trainer.py), and only where no log reports them.
"""

from __future__ import annotations

from posttrain_watchdog.vocabulary.spec import Spec

PREFIX = "posttrain_samples"

METRICS: tuple[Spec, ...] = (
    Spec(PREFIX, "Samples of the step in the run's dump of rollouts", windowed=True),
    Spec(
        PREFIX + "_without_reward",
        "Samples of the step whose reward is null, NaN, infinite or no number",
        windowed=True,
    ),
)
