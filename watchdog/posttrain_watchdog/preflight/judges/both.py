"""Trainer and engine together: what each side says alone is right, and the two do not fit."""

from __future__ import annotations

from collections.abc import Iterator

from posttrain_watchdog.preflight.finding import Finding
from posttrain_watchdog.preflight.view import View

_LONG = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}


def judge(trainer: View, engine: View) -> Iterator[Finding]:
    prompt, completion = trainer.number("max_prompt") or 0.0, trainer.number("max_completion")
    length = engine.number("engine_max_len")
    before = f" after prompts of {prompt:g}" if prompt else ""
    if completion is not None and length is not None and prompt + completion > length:
        yield engine.finding(
            "lengths",
            "critical" if completion > length else "warning",
            "engine_max_len",
            f"the engine holds {length:g} tokens, the trainer asks for completions of {completion:g}{before}",
            "Long completions end at the engine's limit and count as truncated, or the request is refused.",
            fix=engine.fix("engine_max_len", int(prompt + completion)),
            cause="completions_truncated",
        )
    yield from _formats(trainer, engine)
    replays = trainer.mixture_of_experts and trainer.truth("router_replay")
    if replays and engine.framework.name == "vllm" and not engine.truth("router_replay"):
        yield engine.finding(
            "router-replay",
            "warning",
            "router_replay",
            "the trainer replays routers, the engine does not return its choices",
            "Replay has nothing to replay and falls back silently.",
            fix=engine.fix("router_replay", True),
            cause="routing_mismatch",
        )
    ours, theirs = trainer.text("model"), engine.text("model")
    if same_model(trainer, engine) is False:
        yield engine.finding(
            "model",
            "warning",
            "model",
            f"the engine serves {theirs}, the trainer trains {ours}",
            "Until the first weight update the engine samples from another model: ratios and KL are meaningless.",
            cause="stale_weights",
        )
    server = trainer.framework.name == "trl" and trainer.text("engine_mode") == "server"
    if server and engine.framework.name == "vllm" and "vllm-serve" not in engine.document.program:
        yield engine.finding(
            "server",
            "warning",
            "model",
            "TRL's server mode needs `trl vllm-serve`; this is another server",
            "A plain `vllm serve` has no endpoint for weight updates: the engine keeps its first weights.",
            fix="trl vllm-serve --model ...",
            cause="stale_weights",
        )


def _formats(trainer: View, engine: View) -> Iterator[Finding]:
    own = trainer.text("dtype").lower().removeprefix("torch.")
    if not own:
        own = "bfloat16" if trainer.truth("bf16") else "float16" if trainer.truth("fp16") else ""
    other = engine.text("engine_dtype").lower().removeprefix("torch.")
    own, other = _LONG.get(own, own), _LONG.get(other, other)
    if own and other and other not in ("auto", own):
        yield engine.finding(
            "number-format",
            "warning",
            "engine_dtype",
            f"the trainer computes in {own}, the engine in {other}",
            "The two sides round differently: k3 rises to 1e-3 and above, worst at improbable tokens.",
            fix=engine.fix("engine_dtype", own),
            cause="precision_noise",
        )


def same_model(trainer: View, engine: View) -> bool | None:
    """Do both sides name the same model (by the last part of its path)? None where one names none."""
    ours, theirs = trainer.text("model"), engine.text("model")
    if not ours or not theirs:
        return None
    return _name(ours) == _name(theirs)


def _name(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1].lower()
