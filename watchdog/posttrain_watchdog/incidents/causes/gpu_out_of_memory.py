"""A GPU ran out of memory: one incident however many ranks print it, and where in the step it was.

Guards: a run that goes on for several steps afterwards has caught it (a probe for the largest batch does).
"""

from __future__ import annotations

from posttrain_watchdog.incidents.finding import STATED, STRONGLY_AGAINST, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.incidents.statistics import baseline

_PHASES = (
    ("logprobs", ("log_prob", "logprob", "logits", "entropy", "cross_entropy", "log_softmax", "vocab")),
    (
        "weight sync",
        ("sync_weights", "update_weight", "load_weights", "broadcast", "wake_up", "refit", "resume_memory"),
    ),
    ("generation", ("generate", "execute_model", "sample", "prefill", "decode", "profile_run", "rollout")),
    ("update", ("backward", "optimizer", "training_step", "train_step", "clip_grad", "update_actor", "update_policy")),
)
_CHECKS = {
    "logprobs": (
        "log-prob micro-batch size, and tokens per GPU where it is dynamic",
        "chunked or fused entropy and log-probs: the logits of all tokens at once are what fills the memory",
        "longest responses of the last steps against the limit",
    ),
    "weight sync": (
        "memory that the engine frees before the update (sleep level, cache release)",
        "size of the update's buckets",
        "what the trainer still holds: gradients, optimizer state, cached blocks",
    ),
    "generation": (
        "the engine's share of the memory against what the trainer keeps",
        "number of concurrent sequences and their longest length",
        "what else lives on that GPU",
    ),
    "update": (
        "micro-batch size and longest sequence of that step",
        "activation checkpointing and sharding of optimizer state",
        "fragmentation: reserved but unallocated memory in the message",
    ),
    "": (
        "the function in the traceback",
        "longest response of that step and micro-batch size",
        "which processes share the GPU, and how much each holds",
    ),
}
_WENT_ON = 5


def judge(history: History) -> Finding | None:
    said = history.events("cuda_oom")
    if not said:
        return None
    first = said[0]
    stack = next((e.labels.get("stack", "") for e in said if e.labels.get("stack")), "")
    where = next((e.labels.get("where", "") for e in said if e.labels.get("where")), "")
    phase = _phase(stack, first.labels.get("actor", ""))
    who = {(e.labels.get("node", ""), e.labels.get("pid", ""), e.labels.get("rank", "")) for e in said}
    processes = len(who) + sum(int(e.labels.get("repeated", "1")) - 1 for e in said)
    size = next((e.labels["size"] for e in said if "size" in e.labels), "")
    witnesses = {"the process says so": STATED}
    if stack:
        witnesses["its traceback says where"] = SUPPORT
    if first.step is not None and history.step is not None and history.step - (said[-1].step or first.step) >= _WENT_ON:
        witnesses["the run goes on"] = STRONGLY_AGAINST
    evidence: dict[str, float | str] = {"processes": float(processes)}
    told = {"tried to allocate": size, "where": where, "phase": phase, "stack": stack}
    told |= {name: first.labels.get(name, "") for name in ("free", "total", "gpu", "node", "pid", "actor")}
    evidence |= {name: value for name, value in told.items() if value}
    lengths = history.trainer("completion_length_mean")
    if len(lengths) >= 2:
        base = baseline(lengths)
        start = base.middle if base else lengths.head[0][1]
        if lengths.last > 1.2 * start:
            evidence["mean completion length"] = f"{start:g} -> {lengths.last:g} tokens: the allocation grows with it"
    names = [f for f in stack.split(" > ") if f][-2:]
    return Finding(
        summary="GPU out of memory"
        + (f" in {' > '.join(names)}" if names else "")
        + (f", {size} asked for" if size else "")
        + f", {processes} process{'es' if processes != 1 else ''}",
        witnesses=witnesses,
        evidence=evidence,
        first_checks=_CHECKS[phase],
        first_step=first.step,
        labels={"phase": phase, "where": where},
    )


def _phase(stack: str, actor: str) -> str:
    """Part of the step by the innermost telling function; by the actor's name where no traceback came."""
    for function in reversed(stack.lower().split(" > ")):
        for phase, words in _PHASES:
            if any(w in function for w in words):
                return phase
    return "generation" if any(w in actor.lower() for w in ("engine", "vllm", "sglang", "rollout")) else ""
