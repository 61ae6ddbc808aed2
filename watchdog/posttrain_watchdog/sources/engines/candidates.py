"""From the top lists of an answer to candidate sets that do not depend on which token was sampled.

That independence is what makes the statistics of `calibration` valid, and each shape needs its own care:
- completions: a dictionary keyed by text, the K best plus the sampled one where it is not among them. Two tokens of
  the same text fall together; a position where that can have happened is left out. The set is the K best.
- chat: a list of K, the sampled token first and the best others: the K-th best falls out where the sampled one is no
  candidate. The set is the K-1 best.
- SGLang: the K best, whatever was sampled. The set is all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posttrain_watchdog.sources.engines.responses import FLOOR, OPENING, Answer, Position, number

_REPLACEMENT = "\ufffd"


def of_completion(answer: Answer, block: dict[str, Any], skipped: int) -> None:
    """Fills an answer from a `logprobs` block of /v1/completions; `skipped` echoed prompt tokens are left out."""
    chosen = [number(v) for v in block["token_logprobs"]][skipped:]
    answer.logprobs = chosen
    tokens, tops = block.get("tokens"), block.get("top_logprobs")
    if not isinstance(tokens, list) or not isinstance(tops, list):
        return
    wanted = answer.settings.logprobs
    for token, value, top in zip(tokens[skipped:], chosen, tops[skipped:], strict=False):
        if not isinstance(top, dict) or value is None:
            continue
        listed = {k: v for k, raw in top.items() if (v := number(raw)) is not None}
        answer.listed.append(tuple(listed.values()))
        _open(answer, token, listed)
        count = wanted if wanted is not None else len(listed) - (token not in listed)
        position = _of_dictionary(token, value, listed, count)
        if position is not None:
            answer.positions.append(position)


def _of_dictionary(token: Any, value: float, listed: dict[str, float], count: int) -> Position | None:
    if count < 1 or not isinstance(token, str) or len(listed) not in (count, count + 1):
        return None
    others = {k: v for k, v in listed.items() if k != token}
    if any(_ambiguous(k) for k in others) or listed.get(token) != value:
        return None
    added = len(listed) == count + 1
    if _ambiguous(token) and not added:
        return None
    best = others if added else listed
    return _position(value, not added, list(best.values()))


def _ambiguous(text: str) -> bool:
    """Whether other tokens may well have the same text: bytes that are no character by themselves."""
    return not text or _REPLACEMENT in text


def of_chat(answer: Answer, content: Sequence[Any]) -> None:
    """Fills an answer from `logprobs.content` of /v1/chat/completions."""
    entries = [e for e in content if isinstance(e, dict)]
    answer.logprobs = [number(e.get("logprob")) for e in entries]
    for entry, value in zip(entries, answer.logprobs, strict=True):
        top = entry.get("top_logprobs")
        if not isinstance(top, list) or value is None:
            continue
        named = [
            (t.get("token"), v) for t in top if isinstance(t, dict) and (v := number(t.get("logprob"))) is not None
        ]
        answer.listed.append(tuple(v for _, v in named))
        _open(answer, entry.get("token"), {t: v for t, v in named if isinstance(t, str)})
        if len(named) < 2:
            continue
        best = sorted(named, key=lambda pair: -pair[1])[:-1]
        inside = any(v == value and token == entry.get("token") for token, v in best)
        position = _position(value, inside, [v for _, v in best])
        if position is not None:
            answer.positions.append(position)


def of_sglang(answer: Answer, pairs: Sequence[Any], tops: Sequence[Any]) -> None:
    """Fills an answer from `meta_info` of /generate: [logprob, token id, text] a token."""
    read = [p for p in pairs if isinstance(p, (list, tuple)) and len(p) >= 2]
    answer.logprobs = [number(p[0]) for p in read]
    if len(tops) != len(read):
        return
    for pair, value, top in zip(read, answer.logprobs, tops, strict=True):
        if value is None or not isinstance(top, list):
            continue
        named = [(t[1], v) for t in top if isinstance(t, (list, tuple)) and (v := number(t[0])) is not None]
        answer.listed.append(tuple(v for _, v in named))
        if len(named) < len(top) or not named:
            continue  # a candidate without a number: the set would not be known
        position = _position(value, any(i == pair[1] for i, _ in named), [v for _, v in named])
        if position is not None:
            answer.positions.append(position)


def _open(answer: Answer, token: Any, listed: dict[str, float]) -> None:
    """Keeps the candidates of the first positions by name, without those whose name is not theirs alone."""
    if len(answer.openings) == len(answer.listed) - 1 and len(answer.openings) < OPENING and isinstance(token, str):
        answer.openings.append((token, {k: v for k, v in listed.items() if v > FLOOR and not _ambiguous(k)}))


def _position(value: float, inside: bool, best: Sequence[float]) -> Position | None:
    possible = tuple(sorted((v for v in best if v > FLOOR), reverse=True))
    return Position(value, inside, possible) if possible and value > FLOOR else None
