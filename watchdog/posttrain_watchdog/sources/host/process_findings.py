"""What the arguments of trainers and engines mean together.

Promises: pure; says only what the arguments themselves show. A finding with a cause can be had as a diagnosis, by
the one rule of the run's causes; arguments are a plan, so a default that was not overridden counts less than a
value that stands there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from posttrain_watchdog.model import Diagnosis, Metric, Row
from posttrain_watchdog.sources.host.processes import Process, number
from posttrain_watchdog.vocabulary.engine_versions import default_mode, framework_mode, semantics

_PRIOR, _STATED, _STRONG, _SUPPORT = 0.1, 100.0, 10.0, 3.0
_TRUNCATES = ("nemo_rl",)
"""frameworks whose trainers apply top-k and top-p to their own logits"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not fit. `odds` as in docs/incidents.md; 1 says nothing."""

    name: str
    severity: str
    """critical, warning or info"""
    summary: str
    cause: str = ""
    odds: float = 1.0
    pids: tuple[int, ...] = ()
    evidence: Mapping[str, float | str] = field(default_factory=dict)
    checks: tuple[str, str, str] = ("", "", "")

    def diagnosis(self) -> Diagnosis | None:
        """The cause that it names, if it names one."""
        if not self.cause:
            return None
        odds = _PRIOR * self.odds
        return Diagnosis(self.cause, odds / (1 + odds), self.summary, self.evidence, self.checks)


def findings(trainers: Sequence[Process], engines: Sequence[Process]) -> list[Finding]:
    """What the arguments show, worst first."""
    found: list[Finding] = []
    for engine in engines:
        found += _engine(engine)
        for trainer in trainers:
            found += _mode(trainer, engine)
            found += _formats(trainer, engine)
            found += _limits(trainer, engine)
    for trainer in trainers:
        found += _temperatures(trainer)
        found += _truncation(trainer)
        if not engines:
            found += _framework_mode(trainer)
    order = ("critical", "warning", "info")
    unique = {(f.name, f.summary): f for f in found}
    return sorted(unique.values(), key=lambda f: (order.index(f.severity), f.name))


def row(trainers: Sequence[Process], time: float | None = None) -> Row:
    """What command lines say that is a metric: the shortest timeout of collective operations."""
    given = [t for p in trainers if (t := number(p.settings.get("collective_timeout"))) is not None and t > 0]
    return Row({Metric("posttrain_collective_timeout_seconds"): min(given)} if given else {}, time=time)


def mode_of(engine: Process) -> tuple[str, bool]:
    """(logprobs mode, whether it stands on the command line) of an engine."""
    given = engine.settings.get("logprobs_mode")
    if given is not None:
        return given, True
    if engine.role.framework == "sglang":
        original = [engine.environment.get(k) for k in ("SGLANG_RETURN_ORIGINAL_LOGPROB", "RETURN_ORIGINAL_LOGPROB")]
        return ("original", True) if any(v in ("1", "true", "True") for v in original) else ("", False)
    if any("vllm-serve" in w or "vllm_serve" in w for w in engine.argv):
        by_trl = framework_mode("trl", engine.versions.get("trl", ""), "server")
        if by_trl is not None:
            return by_trl.mode, False
    return default_mode(engine.role.framework, engine.versions.get("vllm", "")), False


def _engine(engine: Process) -> Iterator[Finding]:
    mode, _ = mode_of(engine)
    if mode.endswith("_logits"):
        yield Finding(
            "logprobs-mode",
            "critical",
            f"{engine.name} reports {mode}: logits, not log-probabilities",
            "logits_not_logprobs",
            _STATED,
            (engine.pid,),
            {"logprobs_mode": mode},
            ("--logprobs-mode processed_logprobs", "who asked for logits?", "ratios so far mean nothing"),
        )


def _mode(trainer: Process, engine: Process) -> Iterator[Finding]:
    temperature = number(trainer.settings.get("temperature"))
    mode, given = mode_of(engine)
    version = engine.versions.get(engine.role.framework, "")
    says = semantics(engine.role.framework, version, mode)
    if temperature is None or temperature == 1.0 or says is None or not says.normalised or says.temperature:
        return
    shown = mode or "its default"
    yield Finding(
        "logprobs-mode",
        "critical" if given else "warning",
        f"{engine.name} reports {shown}{'' if given else ' (not set)'} while {trainer.name} samples at temperature "
        f"{temperature:g}",
        "logprobs_mode_raw",
        _STATED if given else _STRONG,
        (trainer.pid, engine.pid),
        {"temperature": temperature, "logprobs_mode": shown, "engine version": version or "unknown"},
        (
            "--logprobs-mode processed_logprobs on the engine (vLLM >= 0.10.2)",
            "what the trainer divides its logits by",
            "until then temperature 1 without truncation",
        ),
    )


def _framework_mode(trainer: Process) -> Iterator[Finding]:
    """A trainer with the engine inside: the mode that its framework sets, if the version is known."""
    temperature = number(trainer.settings.get("temperature"))
    version = trainer.versions.get(trainer.role.framework, "")
    if temperature in (None, 1.0) or not version or "logprobs_mode" in trainer.settings:
        return
    sets = framework_mode(trainer.role.framework, version, "colocate")
    if sets is not None and sets.mode == "raw_logprobs" and sets.trainer_scales:
        yield Finding(
            "logprobs-mode",
            "warning",
            f"{trainer.role.framework} {version} leaves its engine at raw_logprobs and samples at temperature "
            f"{temperature:g}",
            "logprobs_mode_raw",
            _STRONG,
            (trainer.pid,),
            {"temperature": str(temperature), "source": sets.source},
            ("a newer framework", "the framework's key for the engine's logprobs mode", "temperature 1"),
        )


def _temperatures(trainer: Process) -> Iterator[Finding]:
    """AReaL and SkyRL have a temperature of their own for the trainer."""
    sampled = number(trainer.settings.get("temperature"))
    scored = number(trainer.settings.get("trainer_temperature"))
    if sampled is not None and scored is not None and not math.isclose(sampled, scored):
        yield Finding(
            "temperature",
            "critical",
            f"{trainer.name} samples at temperature {sampled:g} and scores at {scored:g}",
            "temperature_mismatch",
            _STATED,
            (trainer.pid,),
            {"sampling temperature": sampled, "scoring temperature": scored},
            ("set both to the same value", "generation_config.json of the model", "requests that set their own"),
        )


def _truncation(trainer: Process) -> Iterator[Finding]:
    top_p, top_k = number(trainer.settings.get("top_p")), number(trainer.settings.get("top_k"))
    cut = [f"top_p {top_p:g}"] if top_p is not None and top_p < 1 else []
    cut += [f"top_k {top_k:g}"] if top_k is not None and top_k > 0 else []
    if cut and trainer.role.framework not in _TRUNCATES:
        yield Finding(
            "truncation",
            "info",
            f"{trainer.name} samples with {' and '.join(cut)}: the engine renormalises, the trainer scores over the "
            "full vocabulary",
            "truncated_sampling",
            _SUPPORT,
            (trainer.pid,),
            {"truncation": ", ".join(cut)},
            ("top_p 1 and no top_k", "a trainer that truncates too", "mean ratio below 1 is the kept mass"),
        )


def _formats(trainer: Process, engine: Process) -> Iterator[Finding]:
    one, two = (_format(p.settings.get("dtype")) for p in (trainer, engine))
    if one and two and one != two:
        yield Finding(
            "dtype",
            "info",
            f"{trainer.name} computes in {one}, {engine.name} in {two}",
            pids=(trainer.pid, engine.pid),
            evidence={"trainer": one, "engine": two},
        )
    quantised = engine.settings.get("quantization")
    if quantised and quantised.lower() not in ("none", "null"):
        yield Finding(
            "quantization",
            "info",
            f"{engine.name} is quantised ({quantised})",
            pids=(engine.pid,),
            evidence={"quantization": quantised},
        )


def _format(text: str | None) -> str:
    short = {"bf16": "bfloat16", "half": "float16", "fp16": "float16", "float": "float32", "fp32": "float32"}
    name = (text or "").lower().removeprefix("torch.")
    return "" if name in ("", "auto", "none") else short.get(name, name)


def _limits(trainer: Process, engine: Process) -> Iterator[Finding]:
    asked, limit = number(trainer.settings.get("logprobs")), number(engine.settings.get("max_logprobs"))
    if asked is not None and limit is not None and 0 <= limit < asked:
        yield Finding(
            "max-logprobs",
            "critical",
            f"{trainer.name} asks for {asked:g} logprobs a token, {engine.name} allows {limit:g}: it answers 400",
            "engine_logprobs_missing",
            _STATED,
            (trainer.pid, engine.pid),
            {"asked": asked, "allowed": limit},
            ("--max-logprobs on the engine", "fewer alternatives", "what the client does with a refused request"),
        )
