"""The engine cannot return logprobs: part of its answers fail because a logprob of -inf cannot be written as JSON.

Guards: the message must name the value; failed requests without it have other reasons. Several of them.
"""

from __future__ import annotations

from posttrain_watchdog.incidents.finding import STATED, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History

_LEAST = 2
_REQUESTS = "posttrain_engine_requests_total"


def judge(history: History) -> Finding | None:
    failed = history.events("engine_request_failed")
    named = [e for e in failed if "not JSON compliant" in e.text or "not_json" in e.labels.get("reason", "")]
    if len(named) < _LEAST:
        return None
    value = next((e.labels["value"] for e in named if "value" in e.labels), "a value that is not finite")
    evidence: dict[str, float | str] = {
        "failed requests": float(len(named)),
        "value": value,
        "line": named[0].text[:160],
    }
    answered = sum(t.last for _, t in history.tracks(_REQUESTS) if len(t))
    if answered > 0:
        evidence["requests"] = answered
    witnesses = {"the engine says so": STATED}
    if len(named) >= 5 * _LEAST:
        witnesses["again and again"] = SUPPORT
    return Finding(
        summary=f"{len(named)} requests failed: a logprob of {value} cannot be written as JSON",
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            "top logprobs together with top-p or top-k: candidates that were filtered out have -inf",
            "ask for the sampled token's logprob only, or an engine version that writes null",
            "failing requests are not random: what is missing from training",
        ),
        first_step=named[0].step,
    )
