"""Versions, number formats, memory, timeouts, routing, masks: what the machine and the packages bring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from posttrain_watchdog.preflight.document import Document
from posttrain_watchdog.preflight.finding import Finding, Severity
from posttrain_watchdog.preflight.framework import at_least
from posttrain_watchdog.preflight.view import View

RESERVE = 0.2
"""GPU memory that the guide leaves free for calibration work"""
TIMEOUT = 300.0
"""the guide's collective timeout, seconds"""
MINIMUM: Mapping[str, tuple[str, Severity, str]] = {
    "vllm": ("0.6.0", "critical", "The guide's minimum; older engines have no stable logprobs API."),
    "torch": ("2.0", "critical", "The guide's minimum; log-softmax and compile behave differently before."),
}
WANTED: Mapping[str, tuple[str, str]] = {
    "vllm": (
        "0.10.2",
        "From 0.8 to 0.9 logprobs are raw without a choice; in 0.10.0 to 0.10.1.1 processed ones lack temperature.",
    ),
}


def judge_versions(document: Document) -> Iterator[Finding]:
    """A list of pinned versions."""
    for package, setting in document.settings.items():
        version = str(setting.value)
        minimum = MINIMUM.get(package)
        wanted = WANTED.get(package)
        if minimum is not None and not at_least(version, minimum[0]):
            yield Finding(
                "version",
                minimum[1],
                document.path,
                setting.line,
                package,
                f"{package} {version} is older than {minimum[0]}",
                minimum[2],
                f"-{package}=={version}\n+{package}>={minimum[0]}",
            )
        elif wanted is not None and not at_least(version, wanted[0]):
            yield Finding(
                "version",
                "warning",
                document.path,
                setting.line,
                package,
                f"{package} {version} is older than {wanted[0]}",
                f"{wanted[1]} At a temperature other than 1 every importance ratio is biased from the first step.",
                f"-{package}=={version}\n+{package}>={wanted[0]}",
                "logprobs_mode_raw",
            )


def judge(found: View) -> Iterator[Finding]:
    yield from _memory(found)
    yield from _formats(found)
    yield from _timeout(found)
    yield from _rest(found)


def _memory(found: View) -> Iterator[Finding]:
    share = found.number("gpu_memory")
    setting = found.get("gpu_memory")
    if share is None or setting is None or share <= 1 - RESERVE:
        return
    shares = found.truth("colocate") or found.text("engine_mode") == "colocate"
    severity: Severity = "warning" if setting.given or shares else "info"
    yield found.finding(
        "gpu-memory",
        severity,
        "gpu_memory",
        f"the engine takes {share:.0%} of the GPU" + ("" if setting.given else f" (default of {found.version_words})"),
        f"{1 - share:.0%} is left; the guide keeps {RESERVE:.0%} free for calibration work. Recomputing logprobs "
        f"of the longest batch, or "
        "a weight update beside the cache, then ends in an out-of-memory error.",
        fix=found.fix("gpu_memory", 1 - RESERVE),
        cause="gpu_out_of_memory",
    )


def _formats(found: View) -> Iterator[Finding]:
    for name, healthy in (("quantization", "0.0014 to 0.0050 in FP8"), ("kv_cache_dtype", "up to 0.005")):
        text = found.text(name).lower()
        if text in ("", "none", "auto", "bfloat16", "float16") or (name == "kv_cache_dtype" and "fp8" not in text):
            continue
        yield found.finding(
            "number-format",
            "warning",
            name,
            f"the engine runs with {name} {text}",
            f"Rollouts come from coarser numbers than the trainer's: k3 of healthy runs is {healthy} against 0.001 "
            f"in bf16, and a "
            "scale that is not updated with the weights multiplies it by 5 to 25. Needs the importance correction.",
            cause="precision_noise",
        )
    if found.truth("fp16") and found.truth("bf16"):
        yield found.finding(
            "number-format",
            "critical",
            "fp16",
            "fp16 and bf16 are both on",
            "The trainer refuses to start.",
            fix=found.fix("fp16", False),
        )
    own, engine = _format(found.text("dtype")), _format(found.text("engine_dtype"))
    if own and engine and own != engine:
        yield found.finding(
            "number-format",
            "warning",
            "engine_dtype",
            f"the trainer computes in {own}, the engine in {engine}",
            "The two sides round differently: k3 rises to 1e-3 and above, worst at improbable tokens.",
            fix=found.fix("engine_dtype", own),
            cause="precision_noise",
        )


def _format(text: str) -> str:
    names = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}
    low = text.lower().removeprefix("torch.")
    return "" if low in ("", "auto", "none") else names.get(low, low)


def _timeout(found: View) -> Iterator[Finding]:
    seconds, setting = found.number("timeout"), found.get("timeout")
    if seconds is None or setting is None or not setting.given or seconds == TIMEOUT:
        return
    if seconds < TIMEOUT:
        yield found.finding(
            "collective-timeout",
            "warning",
            "timeout",
            f"collectives time out after {seconds:g} s; the guide wants {TIMEOUT:g}",
            "Long rollouts, evaluation and checkpointing keep ranks apart for minutes: a healthy run is killed.",
            fix=found.fix("timeout", int(TIMEOUT / 60) if "minutes" in setting.key else int(TIMEOUT)),
            cause="collective_hang",
        )
    else:
        yield found.finding(
            "collective-timeout",
            "info",
            "timeout",
            f"collectives time out after {seconds:g} s; the guide wants {TIMEOUT:g}",
            f"A hang holds every GPU for {seconds / 60:.0f} minutes before it becomes an error.",
        )


def _rest(found: View) -> Iterator[Finding]:
    replay = found.get("router_replay")
    off = replay is None or not _on(replay.value)
    if (
        found.framework.role == "trainer"
        and found.mixture_of_experts
        and found.framework.name != "llama_factory"
        and off
    ):
        able = "router_replay" in found.framework.keys
        yield found.finding(
            "router-replay",
            "warning",
            "router_replay" if able else "model",
            f"{found.text('model')} is a mixture of experts and "
            + ("router replay is off" if able else f"{found.framework.title} has no router replay"),
            "About one router in ten chooses differently between engine and trainer: k3 1e-3 to 1e-1 with a two-sided "
            "tail that the mean ratio cannot show (0.999 on a known case).",
            fix=found.fix("router_replay", "R3" if found.framework.name in ("verl", "ms_swift") else True)
            if able
            else "mask the tail (a token_mask or IcePop mode), and keep the router in float32 on both sides",
            cause="routing_mismatch",
        )
    if found.truth("train_on_prompt"):
        yield found.finding(
            "mask",
            "critical",
            "train_on_prompt",
            "prompt tokens count in the loss",
            "The engine did not sample them: their ratio is meaningless.",
            fix=found.fix("train_on_prompt", False),
            cause="mask_covers_prompt",
        )
    lag = found.number("max_lag")
    if lag is not None and lag > 8:
        yield found.finding(
            "policy-lag",
            "warning",
            "max_lag",
            f"samples may be {lag:g} policy versions old",
            "k3 grows with the lag; beyond 8 the correction cuts most of the weight.",
            fix=found.fix("max_lag", 8),
            cause="policy_lag",
        )
    updates = found.number("steps_per_rollout")
    if updates is not None and updates > 1:
        yield found.finding(
            "policy-lag",
            "info",
            "steps_per_rollout",
            f"{updates:g} optimizer passes per rollout",
            "From the second on the policy has moved: policy_lag is expected, and bounded.",
            cause="policy_lag",
        )
    if found.truth("stats_disabled"):
        yield found.finding(
            "engine-statistics",
            "info",
            "stats_disabled",
            "the engine's own statistics are off",
            "Latency, cache use and preemptions cannot be watched.",
            fix=found.fix("stats_disabled", False),
        )
    if found.truth("enforce_eager"):
        yield found.finding(
            "eager",
            "info",
            "enforce_eager",
            "CUDA graphs are off",
            "Sampling is slower; the guide wants less than 15 ms per token.",
        )
    if (
        found.truth("mismatch_metrics") is False
        and found.truth("is_enabled") is not True
        and found.framework.name == "ms_swift"
    ):
        yield found.finding(
            "mismatch-metrics",
            "info",
            "mismatch_metrics",
            "no mismatch metric is logged",
            "Missing is not healthy: the trainer and engine can differ by any amount unseen.",
            fix=found.fix("mismatch_metrics", True),
        )


def _on(value: object) -> bool:
    return str(value).lower() not in ("false", "none", "disabled", "0", "")
