"""From what answers and engine starts add up to, to named causes.

Promises: pure; the confidence follows the one rule of the run's causes: odds of 1 to 10, times what each witness is
worth. Witnesses are facts (a null where a number was asked for), tests with their false-alarm probability, and what
the engine said of itself at its start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from posttrain_watchdog.model import Diagnosis, Event
from posttrain_watchdog.sources.engines.response_tally import Opening, Tally
from posttrain_watchdog.vocabulary.engine_versions import semantics

_PRIOR, _STATED, _STRONG, _SUPPORT, _AGAINST = 0.1, 100.0, 10.0, 3.0, 1 / 3
_LOOKS = 100
"""tests are repeated as answers come in, and over groups: their probabilities are multiplied by this"""
_CHECKS_MODE = (
    "--logprobs-mode processed_logprobs on the engine (vLLM >= 0.10.2), or the framework's key for it",
    "what the trainer divides its logits by: the engine's temperature must be the same",
    "until then temperature 1 without truncation: there raw and processed are the same",
)


@dataclass(slots=True)
class _Case:
    cause: str
    summary: str
    witnesses: dict[str, float]
    evidence: dict[str, float | str]
    checks: tuple[str, str, str]
    first_step: int | None = None
    tokens: int = 0

    def diagnosis(self) -> Diagnosis:
        odds = _PRIOR * math.prod(self.witnesses.values())
        evidence = {**self.evidence, "witnesses": ", ".join(self.witnesses)}
        return Diagnosis(
            self.cause,
            odds / (1 + odds),
            self.summary,
            evidence,
            self.checks,
            first_step=self.first_step,
            tokens=self.tokens,
        )


def diagnose(tally: Tally, starts: Sequence[Event] = (), temperature: float | None = None) -> list[Diagnosis]:
    """Causes that answers and engine starts show, most confident first.

    starts: events of kind engine_started; temperature: at which the trainer samples, where it is known otherwise.
    """
    cases = [*_missing(tally), *_lengths(tally), *_numbers(tally)]
    logits = _logits(tally, starts)
    cases += [logits] if logits else [c for c in [_raw(tally, starts, temperature)] if c]
    return sorted((c.diagnosis() for c in cases), key=lambda d: -d.confidence)


def _share(count: int, of: int) -> dict[str, float]:
    """What `count` answers of `of` with a fault are worth: a fault that can mean nothing else, if it is no accident."""
    if count >= 3 and count / max(of, 1) >= 0.01:
        return {f"{count} of {of} answers": _STATED}
    return {f"{count} of {of} answers": _STRONG if count >= 3 else _SUPPORT}


def _missing(tally: Tally) -> Iterator[_Case]:
    faults = tally.faults
    named = {k: faults[k] for k in ("missing", "null", "all_zero", "refused") if faults[k]}
    if named:
        count = sum(named.values())
        checks = (
            "the request: logprobs (completions), logprobs and top_logprobs (chat), return_logprob (SGLang)",
            "the engine's limit: --max-logprobs; a gateway in between that drops fields",
            "what the rollout code writes in place of what is missing: 0.0 is a probability of 1",
        )
        yield _Case(
            "engine_logprobs_missing",
            f"{count} of {tally.asked} answers that were asked for logprobs have none that can be used",
            _share(count, tally.asked),
            {**{k: float(v) for k, v in named.items()}, "example": next(tally.example[k] for k in named)},
            checks,
            min((tally.first_step[k] for k in named if k in tally.first_step), default=None),
            tally.tokens,
        )
    if faults["no_prompt_logprobs"]:
        count = faults["no_prompt_logprobs"]
        yield _Case(
            "prompt_logprobs_missing",
            f"{count} of {tally.asked_prompt} answers lack the prompt logprobs that were asked for",
            _share(count, tally.asked_prompt),
            {"answers": float(count), "asked": float(tally.asked_prompt)},
            (
                "the engine: prompt logprobs are left out with some prefix caches and in streams",
                "the gateway: does it pass prompt_logprobs on?",
                "SGLang: logprob_start_len 0",
            ),
            tally.first_step.get("no_prompt_logprobs"),
        )


def _lengths(tally: Tally) -> Iterator[_Case]:
    count = tally.faults["wrong_length"]
    if count:
        yield _Case(
            "length_mismatch",
            f"{count} of {tally.asked} answers hold another number of logprobs than of tokens",
            _share(count, tally.asked),
            {"answers": float(count), "example": tally.example["wrong_length"]},
            (
                "stop strings and stop tokens: does the end token have a logprob?",
                "echo: prompt tokens in front",
                "re-tokenised text instead of the engine's own token ids",
            ),
            tally.first_step.get("wrong_length"),
        )


def _numbers(tally: Tally) -> Iterator[_Case]:
    count = tally.faults["not_finite"]
    if count:
        yield _Case(
            "non_finite",
            f"{count} of {tally.asked} answers report a sampled token with a logprob that is not finite",
            _share(count, tally.asked),
            {"answers": float(count), "example": tally.example["not_finite"]},
            (
                "the engine's log for NaN in logits",
                "number format of the engine; overflow in its last layer",
                "weights after the last sync: finite?",
            ),
            tally.first_step.get("not_finite"),
        )


def _said(starts: Sequence[Event], temperature: float | None, truncated: bool) -> dict[str, float]:
    """What the engine's start says: worth of the suspicion that its numbers are not the sampling distribution."""
    known = [e for e in starts if "logprobs_mode" in e.labels]
    if not known:
        return {}
    labels = known[-1].labels
    says = semantics(labels.get("engine_family", "vllm"), labels.get("version", ""), labels["logprobs_mode"])
    if says is None or temperature is None:
        return {}
    told = f"the engine's start says {labels['logprobs_mode']} (version {labels.get('version', 'unknown')})"
    if says.is_sampling_distribution(temperature, truncated and temperature != 1.0):
        return {told: 1 / _STATED}
    return {told: _STATED}


def _logits(tally: Tally, starts: Sequence[Event]) -> _Case | None:
    witnesses: dict[str, float] = {}
    if tally.positive:
        witnesses[f"{tally.positive} reported values above 0"] = _STATED if tally.positive >= 3 else _STRONG
    if tally.overfull >= 3 and tally.overfull > 0.01 * tally.lists:
        witnesses[f"candidates hold more than all probability at {tally.overfull} positions"] = _STATED
    modes = [e.labels["logprobs_mode"] for e in starts if "logprobs_mode" in e.labels]
    if modes and modes[-1].endswith("_logits"):
        witnesses[f"the engine's start says {modes[-1]}"] = _STATED
    if not witnesses:
        return None
    return _Case(
        "logits_not_logprobs",
        "the engine reports logits, not log-probabilities"
        + (f": values up to {tally.largest:.3g}" if tally.positive else ""),
        witnesses,
        {"positive": float(tally.positive), "positions with more than all probability": float(tally.overfull)},
        (
            "--logprobs-mode processed_logprobs on the engine",
            "a logits processor or gateway that rewrites the numbers",
            "what the trainer made of them: ratios of logits mean nothing",
        ),
        tokens=tally.tokens,
    )


def _raw(tally: Tally, starts: Sequence[Event], temperature: float | None) -> _Case | None:
    """The reported numbers are those before temperature and penalties."""
    used = {g.temperature for g in tally.groups} or ({temperature} if temperature is not None else set())
    other = sorted(t for t in used if t != 1.0)
    if not other:
        return None  # at temperature 1 raw and processed are the same
    usual = temperature if temperature in other else other[0]
    truncated = bool(tally.groups) and all(g.truncated for g in tally.groups)
    evidence: dict[str, float | str] = {"temperature": usual}
    witnesses = _said(starts, usual, truncated)
    tested, figures = _sampled(tally)
    compared, pairs = _compared(tally.contexts)
    witnesses |= tested | compared
    evidence |= figures | pairs
    if not witnesses or _PRIOR * math.prod(witnesses.values()) < _PRIOR:
        return None
    return _Case(
        "logprobs_mode_raw",
        f"tokens are sampled at temperature {usual:g}, the reported logprobs are those before it",
        witnesses,
        evidence,
        _CHECKS_MODE,
        tokens=tally.tokens,
    )


def _sampled(tally: Tally) -> tuple[dict[str, float], dict[str, float | str]]:
    """What the sampled tokens say: were they drawn from the reported numbers?"""
    log_odds, clear, certain = 0.0, 1.0, False
    witnesses: dict[str, float] = {}
    evidence: dict[str, float | str] = {}
    for group, found in tally.calibrations().items():
        if group.temperature == 1.0 or group.penalised or not math.isfinite(found.distance(1.0)):
            continue
        p = min(1.0, _LOOKS * found.surprise())
        named = f"at T {group.temperature:g}" + (", truncated" if group.truncated else "")
        evidence[f"sampling temperature over reported {named}"] = (
            f"{found.temperature:.3f} +- {found.temperature_error:.3f} ({found.positions} tokens)"
        )
        if not group.truncated:
            log_odds += found.log_odds(1 / group.temperature)
            clear = min(clear, p)
            certain = certain or group.vllm
        elif group.vllm and group.temperature < 1:
            # vLLM's processed numbers are renormalised over what truncation kept; only raw ones promise too little
            deviate = max(found.z_mass, found.z_shape)
            p = min(1.0, 2 * _LOOKS * math.erfc(deviate / math.sqrt(2)) / 2) if deviate > 0 else 1.0
            if p < 1 / _STRONG:
                named = f"tokens {named} are likelier candidates than the reported numbers promise"
                witnesses[named] = min(1 / p, _STATED) if p > 0 else _STATED
    if log_odds > 0:
        # other engines scale by temperature, and a model's own defaults may truncate what looks untruncated
        most = _STATED if certain else _STRONG
        likely = min(math.exp(min(log_odds, 10)), most, 1 / clear if clear > 0 else most)
        witnesses["tokens fit the reported numbers after division by the temperature"] = max(1.0, likely)
    elif log_odds < 0:
        witnesses["tokens fit the reported numbers as they are"] = max(math.exp(max(log_odds, -10)), 1 / _STATED)
    return witnesses, evidence


def _compared(contexts: Mapping[tuple[str, ...], Sequence[Opening]]) -> tuple[dict[str, float], dict[str, float | str]]:
    """The same context at two settings: raw numbers are equal, processed ones are not."""
    raw = processed = 0
    for held in contexts.values():
        for i, one in enumerate(held):
            for two in held[i + 1 :]:
                verdict = _pair(one, two)
                raw += verdict == "raw"
                processed += verdict == "processed"
    if not raw + processed:
        return {}, {}
    evidence: dict[str, float | str] = {"contexts seen at two settings": float(raw + processed), "equal": float(raw)}
    if raw >= 3 and raw >= 9 * processed:
        return {"the same context has the same numbers at other settings": _STATED}, evidence
    if processed >= 3 and processed >= 9 * raw:
        return {"the same context has other numbers at other settings": 1 / _STATED}, evidence
    return {}, evidence


def _pair(one: Opening, two: Opening) -> str:
    """raw, processed, or "" where these two settings cannot tell."""
    a, b = one.group, two.group
    if a.penalised or b.penalised:
        return ""
    common = sorted(one.candidates.keys() & two.candidates.keys(), key=lambda k: -one.candidates[k])
    if len(common) < 2:
        return ""
    x = [one.candidates[k] for k in common]
    y = [two.candidates[k] for k in common]
    if a.temperature != b.temperature:
        over = math.fsum((v - x[0]) * (w - y[0]) for v, w in zip(x, y, strict=True))
        under = math.fsum((w - y[0]) ** 2 for w in y)
        if under < 1e-2:
            return ""
        ratio, scaled = over / under, b.temperature / a.temperature
        near = abs(scaled - 1) / 4
        return "raw" if abs(ratio - 1) < near else "processed" if abs(ratio - scaled) < near else ""
    if a.truncated != b.truncated:
        shift = sorted(abs(v - w) for v, w in zip(x, y, strict=True))[len(x) // 2]
        return "raw" if shift < 0.01 else "processed" if shift > 0.05 else ""
    return ""
