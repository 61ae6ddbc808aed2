"""Engine logprobs belong to another sequence of the batch."""

from __future__ import annotations

from posttrain_watchdog.consistency.alignment import Routing, best_routing
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "order of requests against order of responses: match by request id, not by arrival",
    "is the batch shuffled, sorted by length or regrouped on one side only",
    "gather over ranks: does every rank take back its own slice",
)


def judge(window: Window) -> Finding | None:
    """Another sequence of the same step fits a sequence's trainer logprobs; its own engine logprobs do not."""
    if window.quiet:
        return None
    routing: Routing | None = window.remember("routing", best_routing)
    if routing is None or not routing.hit.any():
        return None
    count = int(routing.hit.sum())
    return Finding(
        "sequences_misrouted",
        routing.p,
        routing.explained,
        f"{count} of {window.batch.sequences} sequences hold the engine logprobs of another sequence of their step; "
        f"exchanging them takes away {routing.explained:.0%} of the difference",
        {
            "sequences": count,
            "share_of_sequences": count / window.batch.sequences,
            "difference_taken_away": routing.explained,
        },
        CHECKS,
        len(window.d),
        window.hits_per_step(routing.hit),
        claims_differences=True,
    )
