"""Sampling against scoring: logprobs mode, temperature, truncation, penalties.

The figures quoted were measured on real runs of a small model (TRL with vLLM, 60 steps) or come from the source named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from posttrain_watchdog.preflight.finding import Finding, Severity
from posttrain_watchdog.preflight.framework import at_least
from posttrain_watchdog.preflight.view import View

_RAW = (
    "the logprobs are those before temperature and penalties, the tokens were sampled after them: every ratio is "
    "biased from "
    "the first step. At T 0.85 a real run showed a mean ratio of 1.010 and a KL of 0.004, inside every limit"
)


def judge(trainer: View, engine: View | None) -> Iterator[Finding]:
    """A trainer, with the engine's own command line where there is one."""
    yield from _mode(trainer, engine)
    yield from _truncation(trainer)
    yield from _penalties(trainer)
    yield from _temperatures(trainer, engine)
    yield from _requested(trainer, engine)


def judge_engine(engine: View) -> Iterator[Finding]:
    """An engine's command line on its own."""
    mode = engine.text("logprobs_mode")
    if mode in ("raw_logits", "processed_logits"):
        yield _logits(engine, mode)
    elif mode == "raw_logprobs":
        yield engine.finding(
            "logprobs-mode",
            "warning",
            "logprobs_mode",
            f"{engine.framework.title} reports raw logprobs" + ("" if _given(engine) else " (its default)"),
            f"At a temperature other than 1, {_RAW}.",
            fix=_processed(engine),
            cause="logprobs_mode_raw",
        )
    yield from _half_processed(engine, None)
    if (
        engine.framework.name == "vllm"
        and engine.text("generation_config") == "auto"
        and "served_by_trl" not in engine.settings
    ):
        yield engine.finding(
            "generation-config",
            "info",
            "generation_config",
            "the model's generation_config.json supplies sampling defaults",
            "top_p, top_k, temperature or a repetition penalty of the model apply to every request that does not "
            "set them: a "
            "repetition penalty gave a mean ratio of 0.99 and a KL of 0.06 on a real run.",
            fix=engine.fix("generation_config", "vllm"),
            cause="truncated_sampling",
        )


def _mode(trainer: View, engine: View | None) -> Iterator[Finding]:
    at = engine if engine is not None else trainer
    mode = at.text("logprobs_mode")
    temperature = trainer.number("temperature")
    if not trainer.needs_correction and trainer.framework.name != "prime_rl":
        return
    if mode in ("raw_logits", "processed_logits"):
        if engine is None:
            yield _logits(trainer, mode)
        return
    if mode == "raw_logprobs" and trainer.framework.scales_by_temperature:
        if temperature is not None and temperature != 1.0:
            severity: Severity = "info" if "logprobs_unused" in trainer.settings else "critical"
            yield at.finding(
                "logprobs-mode",
                severity,
                "logprobs_mode",
                f"the engine reports raw logprobs while {trainer.framework.title} divides its logits by T "
                f"{temperature:g}",
                f"{_RAW[0].upper()}{_RAW[1:]}.",
                fix=_processed(at),
                cause="logprobs_mode_raw",
            )
        elif engine is None and "logprobs_unused" not in trainer.settings:
            yield at.finding(
                "logprobs-mode",
                "warning",
                "logprobs_mode",
                "the engine reports raw logprobs; the guide wants processed_logprobs",
                f"It is right only while the temperature is exactly 1 and nothing is truncated or penalised; "
                f"otherwise {_RAW}.",
                fix=_processed(at),
                cause="logprobs_mode_raw",
            )
    if engine is not None and mode.startswith("processed"):
        yield from _half_processed(engine, temperature)
    elif engine is None and mode.startswith("processed"):
        yield from _half_processed(trainer, temperature)


def _half_processed(at: View, temperature: float | None) -> Iterator[Finding]:
    version = at.versions.get("vllm")
    if version is None or at.framework.engine != "vLLM":
        return
    if at.framework.role == "engine" and _given(at) and not at_least(version, "0.10.0"):
        yield at.finding(
            "unknown-key",
            "critical",
            "logprobs_mode",
            f"vLLM {version} does not know --logprobs-mode",
            "It came with 0.10.0; the server does not start.",
            fix="vllm>=0.10.2",
        )
    if temperature == 1.0:
        return
    if (
        at.text("logprobs_mode").startswith("processed")
        and at_least(version, "0.10.0")
        and not at_least(version, "0.10.2")
    ):
        yield at.finding(
            "vllm-version",
            "critical",
            "logprobs_mode",
            f"processed logprobs of vLLM {version} lack temperature, top-k and top-p",
            "In 0.10.0 to 0.10.1.1 `processed_*` means after penalties and before temperature: the ratio is biased "
            "as in raw mode.",
            fix="vllm>=0.10.2",
            cause="logprobs_mode_raw",
        )


def _truncation(trainer: View) -> Iterator[Finding]:
    if trainer.framework.truncates:
        return
    for name, off, reads in (("top_p", (1.0,), "top_p"), ("top_k", (0, -1), "top_k"), ("min_p", (0.0,), "min_p")):
        value = trainer.number(name)
        if value is None or value in off:
            continue
        if name == "top_p" and value > 1:
            continue
        measured = "0.896 at top_p 0.8 (measured in TRL), 0.875 at top_k 20 with top_p 0.9"
        found = trainer.get(name)
        yield trainer.finding(
            "truncated-sampling",
            "critical" if found is not None and found.given else "warning",
            name,
            f"rollouts are truncated ({reads} {value:g}), {trainer.framework.title} scores over the full vocabulary",
            f"Processed logprobs are renormalised over the kept tokens, so the mean ratio settles at the kept "
            f"mass: {measured}; "
            "every gradient is weighted by it, most where the model is uncertain.",
            fix=trainer.fix(name, off[-1] if name == "top_k" and trainer.framework.name != "trl" else off[0]),
            cause="truncated_sampling",
        )


def _penalties(trainer: View) -> Iterator[Finding]:
    for name, neutral in (("repetition_penalty", 1.0), ("presence_penalty", 0.0), ("frequency_penalty", 0.0)):
        value = trainer.number(name)
        if value is None or value == neutral:
            continue
        yield trainer.finding(
            "penalty",
            "critical",
            name,
            f"rollouts use {name} {value:g}, which no trainer applies to its logits",
            "The tokens come from a distribution that the trainer never computes. A real run with a repetition "
            "penalty showed a "
            "mean ratio of 0.99 and a KL of 0.06, inside both limits of the guide.",
            fix=trainer.fix(name, neutral),
            cause="logit_processor",
        )


def _temperatures(trainer: View, engine: View | None) -> Iterator[Finding]:
    rollout, other = trainer.number("temperature"), trainer.number("trainer_temperature")
    if rollout is not None and other is not None and rollout != other:
        yield trainer.finding(
            "temperature",
            "critical",
            "trainer_temperature",
            f"the trainer scores at T {other:g}, rollouts are sampled at T {rollout:g}",
            "The engine's report is honest, so the mean ratio stays at 1 (1.000 on a real run at T 1.0 against "
            "0.85, KL 0.01) "
            "while the trainer optimises another distribution; entropy drifts.",
            fix=trainer.fix("trainer_temperature", rollout),
            cause="temperature_mismatch",
        )
    if rollout is not None and rollout <= 0:
        yield trainer.finding(
            "temperature",
            "critical",
            "temperature",
            f"rollouts at temperature {rollout:g} are greedy",
            "Every completion of a group is the same: no spread of reward, no gradient.",
            fix=trainer.fix("temperature", 1.0),
            cause="no_learning_signal",
        )
    override = engine.text("override_generation_config") if engine is not None else ""
    if engine is not None and override:
        try:
            forced = json.loads(override)
        except ValueError:
            return
        value = forced.get("temperature") if isinstance(forced, dict) else None
        if isinstance(value, int | float) and rollout is not None and value != rollout:
            yield engine.finding(
                "temperature",
                "warning",
                "override_generation_config",
                f"the engine's default temperature is {value:g}, the trainer's is {rollout:g}",
                "Requests that do not set a temperature are sampled at another one than the trainer scores.",
                fix=engine.document.spell("generation_config", "vllm"),
                cause="temperature_mismatch",
            )


def _requested(trainer: View, engine: View | None) -> Iterator[Finding]:
    asked = trainer.get("engine_logprobs")
    if (
        asked is not None
        and (asked.value is None or trainer.truth("engine_logprobs") is False)
        and str(asked.value) != "0"
    ):
        yield trainer.finding(
            "engine-logprobs",
            "warning",
            "engine_logprobs",
            "the engine is not asked for logprobs" + ("" if asked.given else f" (default of {trainer.version_words})"),
            "Without them there is neither a correction nor a mismatch metric: trainer and engine can differ by "
            "any amount unseen.",
            fix=trainer.fix("engine_logprobs", True if trainer.framework.name == "verl" else 0),
            cause="engine_logprobs_missing",
        )
    limit = engine.number("max_logprobs") if engine is not None else None
    if engine is not None and limit == 0 and trainer.needs_correction:
        yield engine.finding(
            "max-logprobs",
            "critical",
            "max_logprobs",
            "the engine refuses requests for logprobs (max_logprobs 0)",
            "Requests with logprobs answer 400, or the client goes on without them.",
            fix=engine.fix("max_logprobs", 20),
            cause="engine_logprobs_missing",
        )


def _logits(at: View, mode: str) -> Finding:
    return at.finding(
        "logprobs-mode",
        "critical",
        "logprobs_mode",
        f"the engine reports logits ({mode})",
        "Logits are not normalised: exp(trainer − engine) means nothing, and positive values overflow.",
        fix=_processed(at),
        cause="logits_not_logprobs",
    )


def _given(at: View) -> bool:
    found = at.get("logprobs_mode")
    return found is not None and found.given


def _processed(at: View) -> str:
    name = at.framework.name
    if name == "trl":
        return "trl>=0.28, or start the server with --logprobs-mode processed_logprobs"
    if name == "sglang":
        return "unset SGLANG_RETURN_ORIGINAL_LOGPROB"
    if name == "openrlhf":
        return at.fix("is_enabled", True)
    if name == "ms_swift":
        return "vllm>=0.10.2"
    if "trl vllm-serve" in at.document.program:
        return "trl>=0.28"
    return at.fix("logprobs_mode", "processed_logprobs")
