"""Requests and responses as gateways and rollout code write them: one JSON object a line.

Promises: reads OpenAI completions and chat answers and SGLang's /generate, bare or beside their request under
{"request", "status", "response"}, and SGLang's own log of its requests (request_log.py); one `Answer` a choice. What is
not an answer is skipped; nothing is judged here. NaN and infinities are accepted as bare words and as strings. Reads no
clock and no file.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from posttrain_watchdog.sources.engines import request_log

OPENING = 4
"""first positions of an answer kept by name: answers to one prompt have the same contexts there"""
FLOOR = -9998.0
"""vLLM writes -inf as -9999.0 in the OpenAI shapes"""
_REQUESTS = ("request", "req", "request_body")
_RESPONSES = ("response", "resp", "response_body")
_PENALTIES = (
    ("repetition_penalty", 1.0),
    ("presence_penalty", 0.0),
    ("frequency_penalty", 0.0),
)
_CHANGES = ("logit_bias", "bad_words", "allowed_token_ids", "guided_json", "guided_regex", "guided_choice",
            "guided_grammar", "structured_outputs", "response_format", "json_schema", "regex", "ebnf", "min_tokens",
            "logits_processors", "custom_logit_processor")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """What the request asked for. None: the request does not say, or there is no request beside the answer."""

    known: bool = False
    temperature: float | None = None
    truncated: bool = False
    penalised: bool = False
    logprobs: int | None = None
    """how many alternatives; 0 the sampled token only; None no logprobs"""
    prompt_logprobs: bool = False
    seed: int | None = None


@dataclass(slots=True)
class Position:
    """One sampled token beside a set of best candidates that does not depend on which one was sampled."""

    logprob: float
    inside: bool
    candidates: tuple[float, ...]
    """logprobs of the set, best first; a candidate that cannot be sampled (-inf) is left out"""


@dataclass(slots=True)
class Answer:
    """One choice of one response."""

    shape: str
    """completions, chat, sglang, or error"""
    status: int
    settings: Settings
    tokens: int = -1
    """tokens generated, as the engine counts them apart from its logprobs; -1 unknown"""
    logprobs: list[float | None] | None = None
    """of the generated tokens; None: no logprobs at all"""
    prompt_given: bool = False
    """whether prompt logprobs came"""
    positions: list[Position] = field(default_factory=list)
    listed: list[tuple[float, ...]] = field(default_factory=list)
    """logprobs of every candidate named at each position"""
    error: str = ""
    step: int | None = None
    context: str = ""
    """what the first token was sampled after: a digest of model and prompt; empty where the request is unknown"""
    openings: list[tuple[str, dict[str, float]]] = field(default_factory=list)
    """(sampled token, candidates by name) of the first positions"""
    vllm: bool = False
    """whether the answer has fields that only vLLM writes"""


def recognises(record: Mapping[str, object]) -> bool:
    """Whether a line's object is an answer of an engine."""
    answer = _of(record, _RESPONSES, record)
    if _of(record, _REQUESTS, None) is not None and ("status" in record or any(k in record for k in _RESPONSES)):
        return True
    if isinstance(answer, list):
        answer = answer[0] if answer else None
    return isinstance(answer, dict) and (isinstance(answer.get("choices"), list) or "meta_info" in answer)


def read(lines: Sequence[bytes]) -> Iterator[Answer]:
    """The answers of complete lines."""
    for line in lines:
        record: Any = _decode(request_log.without_stamp(line))
        if isinstance(record, dict) and request_log.recognises(record):
            record = request_log.saved(record)
        if isinstance(record, dict) and recognises(record):
            yield from answers(record)


def _decode(text: bytes | str) -> Any:
    if not text.strip():
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            return json.loads(text)  # knows NaN and Infinity
        except (ValueError, RecursionError):
            return None


def answers(record: Mapping[str, Any]) -> Iterator[Answer]:
    """The answers of one line's object."""
    request = _of(record, _REQUESTS, None)
    request = _decode(request) if isinstance(request, str) else request
    settings = read_settings(request) if isinstance(request, dict) else Settings()
    response = _of(record, _RESPONSES, None if request is not None else record)
    response = _decode(response) if isinstance(response, str) else response
    status = record.get("status", record.get("status_code"))
    step = record.get("step")
    where = step if isinstance(step, int) and not isinstance(step, bool) else None
    code = int(status) if isinstance(status, (int, float)) else 200
    context = _context(request) if isinstance(request, dict) else ""
    for each in response if isinstance(response, list) else [response]:
        if not isinstance(each, dict) or "error" in each or each.get("object") == "error" or code >= 400:
            said = each.get("error", each.get("message", each)) if isinstance(each, dict) else each
            said = said.get("message", said) if isinstance(said, dict) else said
            failed = code if code >= 400 else 500
            yield Answer("error", failed, settings, error=str(said)[:300], step=where)
        elif "meta_info" in each:
            yield _sglang(each, settings, code, where)
        else:
            for answer in _openai(each, settings, code, where):
                answer.context = context
                answer.vllm = "kv_transfer_params" in each or str(each.get("system_fingerprint")).startswith("vllm")
                yield answer


def _context(request: Mapping[str, Any]) -> str:
    asked = [request.get(k) for k in ("model", "prompt", "messages", "input_ids", "text", "tools")]
    if all(a is None for a in asked[1:4]):
        return ""
    return hashlib.blake2b(json.dumps(asked, default=str).encode(), digest_size=12).hexdigest()


def _of(record: Mapping[str, Any], names: Sequence[str], default: Any) -> Any:
    return next((record[n] for n in names if n in record), default)


def read_settings(request: Mapping[str, Any]) -> Settings:
    """The sampling settings of a request body of either engine."""
    inner = request.get("sampling_params")
    inner = inner if isinstance(inner, dict) else {}
    extra = request.get("extra_body")
    given: dict[str, Any] = {**request, **(extra if isinstance(extra, dict) else {}), **inner}

    def number(name: str) -> float | None:
        value = given.get(name)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    top_p, top_k, min_p = number("top_p"), number("top_k"), number("min_p")
    truncated = (top_p is not None and top_p < 1) or (top_k is not None and top_k > 0) or bool(min_p and min_p > 0)
    penalised = any((v := number(k)) is not None and v != neutral for k, neutral in _PENALTIES)
    penalised = penalised or any(given.get(k) for k in _CHANGES)
    return Settings(
        known=True,
        temperature=number("temperature"),
        truncated=truncated,
        penalised=penalised,
        logprobs=_asked(given),
        prompt_logprobs=given.get("prompt_logprobs") is not None or given.get("logprob_start_len") == 0,
        seed=int(seed) if (seed := number("seed")) is not None else None,
    )


def _asked(given: Mapping[str, Any]) -> int | None:
    if given.get("return_logprob") is True:
        top = given.get("top_logprobs_num")
        return int(top) if isinstance(top, int) else 0
    asked = given.get("logprobs")
    if asked is True:
        top = given.get("top_logprobs")
        return int(top) if isinstance(top, int) else 0
    if isinstance(asked, int) and asked is not False:
        return asked
    return None


def number(value: object) -> float | None:
    """A logprob as JSON holds it; None for null and for what is no number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def _openai(response: Mapping[str, Any], settings: Settings, code: int, step: int | None) -> Iterator[Answer]:
    from posttrain_watchdog.sources.engines.candidates import of_chat, of_completion

    choices = [c for c in response.get("choices") or [] if isinstance(c, dict)]
    usage = response.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    for choice in choices:
        chat = "message" in choice
        answer = Answer("chat" if chat else "completions", code, settings, step=step)
        ids = choice.get("token_ids")
        used = usage.get("completion_tokens")
        if isinstance(ids, list):
            answer.tokens = len(ids)
        elif isinstance(used, int) and len(choices) == 1:
            answer.tokens = used
        prompt = choice.get("prompt_logprobs") or response.get("prompt_logprobs")
        # the first token of a prompt has no logprob: that of a prompt of one token is [null]
        answer.prompt_given = isinstance(prompt, list) and (len(prompt) == 1 or any(p is not None for p in prompt))
        block = choice.get("logprobs")
        if isinstance(block, dict) and isinstance(block.get("content"), list):
            of_chat(answer, block["content"])
        elif isinstance(block, dict) and isinstance(block.get("token_logprobs"), list):
            skipped = len(block["token_logprobs"]) - answer.tokens
            echoed = usage.get("prompt_tokens") == skipped and skipped > 0
            of_completion(answer, block, skipped if echoed else 0)
        yield answer


def _sglang(response: Mapping[str, Any], settings: Settings, code: int, step: int | None) -> Answer:
    from posttrain_watchdog.sources.engines.candidates import of_sglang

    meta = response["meta_info"] if isinstance(response["meta_info"], dict) else {}
    answer = Answer("sglang", code, settings, step=step)
    ids = response.get("output_ids")
    if isinstance(ids, list):
        answer.tokens = len(ids)
    elif isinstance(meta.get("completion_tokens"), int):
        answer.tokens = meta["completion_tokens"]
    answer.prompt_given = bool(meta.get("input_token_logprobs"))
    pairs = meta.get("output_token_logprobs")
    if isinstance(pairs, list):
        top = meta.get("output_top_logprobs")
        of_sglang(answer, pairs, top if isinstance(top, list) else [])
    return answer


def finite(value: float | None) -> bool:
    """Whether a logprob is a number that a sampled token can have."""
    return value is not None and math.isfinite(value) and value > FLOOR
