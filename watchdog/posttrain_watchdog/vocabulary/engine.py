"""What inference engines say of themselves, under one name whatever the engine and its version."""

from __future__ import annotations

from posttrain_watchdog.vocabulary.spec import Spec

METRICS: tuple[Spec, ...] = (
    Spec(
        "posttrain_engine_seconds_per_token",
        "Mean time between two generated tokens of a request, since the last reading",
        "seconds",
        labels=("engine",),
    ),
    Spec(
        "posttrain_engine_tokens_per_second",
        "Tokens generated per second, all requests",
        "tokens",
        labels=("engine",),
    ),
)
