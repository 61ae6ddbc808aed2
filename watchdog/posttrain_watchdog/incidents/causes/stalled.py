"""No step for far longer than usual, and no cause in sight; and what could not be looked at.

Guards: the budget is a multiple of the run's own steps, twice its longest recent one (evaluations, checkpoints), and at
least ten minutes; a run that ended, was preempted or has just resumed does not stall; an engine that still generates is
a long rollout. Where lines say why, the other causes speak.
"""

from __future__ import annotations

from posttrain_watchdog.incidents.finding import AGAINST, STRONG, STRONGLY_AGAINST, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History

_TIMES = 5.0
_LEAST_SECONDS = 600.0
_KNOWN = 3
_EXPLAINED = (
    "nccl_timeout",
    "cuda_oom",
    "host_oom",
    "worker_died",
    "segfault",
    "xid",
    "gpu_lost",
    "engine_died",
    "traceback",
)
_WITNESSES = {"posttrain_engine_": "engine metrics", "posttrain_gpu_": "GPUs", "posttrain_host_": "host memory"}


def judge(history: History) -> Finding | None:
    usual = history.usual_step_seconds
    if (
        history.finished
        or history.interrupted is not None
        or history.step_seen is None
        or history.now is None
        or usual is None
        or len(history.pace) < _KNOWN
    ):
        return None
    waited = history.now - history.step_seen
    budget = max(_TIMES * usual, 2 * max(history.pace), _LEAST_SECONDS)
    if waited <= budget:
        return None
    witnesses = {f"{waited:.0f} s without a step": STRONG}
    if waited > 3 * budget:
        witnesses["far beyond"] = SUPPORT
    evidence: dict[str, float | str] = {
        "seconds since the last step": round(waited),
        "usual step": round(usual, 1),
        "budget": round(budget),
        "last step": float(history.step if history.step is not None else -1),
    }
    said = [e for e in history.since_step if e.kind in _EXPLAINED]
    if said:
        witnesses["a line says why"] = STRONGLY_AGAINST
        evidence["line"] = said[0].text[:160]
    if history.open_sync is not None:
        evidence["last line"] = history.open_sync.text[:160]
    running = [t.last for _, t in history.tracks("posttrain_engine_requests_running") if len(t)]
    if running:
        evidence["requests running in the engine"] = sum(running)
        if sum(running) > 0:
            witnesses["the engine is still generating"] = AGAINST
    if history.heard:
        rank, when = min(history.heard.items(), key=lambda item: item[1])
        evidence["rank silent the longest"] = f"rank {rank}, {history.now - when:.0f} s"
    names = list(history.names())
    unseen = [what for prefix, what in _WITNESSES.items() if not any(n.startswith(prefix) for n in names)]
    unseen += ["stacks of the ranks"] + (
        [] if history.events("xid", "machine_check") else ["kernel log (nothing came from it)"]
    )
    evidence["not looked at"] = ", ".join(unseen)
    return Finding(
        summary=f"no step for {waited:.0f} s, usually one in {usual:.3g} s; cause not visible",
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            "stack of every rank (py-spy dump): evaluation, checkpoint, data loader, or a collective",
            "the engine: requests running, tokens per second, its last log lines",
            "kernel log and GPU utilisation of every node",
        ),
        first_step=history.step,
    )
