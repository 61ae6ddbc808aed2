"""SGLang's own records of its requests: the log (`[time] {json}`) and the exported request metrics.

Promises: known by content, so that a generated text in them is never taken for a log line; a finished request becomes
the request and the answer that a gateway would have saved, so that both are judged alike. Requests that are only
received, embeddings, diffusion and health checks give nothing. Pure.

What a level leaves out is unknown, not missing: levels 0 and 1 have no output ids, level 2 cuts every list and text
beyond 2048 in the middle ("..."), and with incremental streaming the last record holds the last piece alone.
`output_token_logprobs` are after the temperature and before top-k and top-p.

Source: SGLang 0.5.23 srt/utils/request_logger.py (format json), srt/utils/log_utils.py (the time in front),
srt/observability/request_metrics_exporter.py (meta_info, and the request as JSON in `request_parameters`),
srt/managers/tokenizer_manager.py (meta_info, streaming).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

_STAMP = re.compile(rb"^\[[^\]\[{}]{1,40}\] (?={)")
_CUT = "..."
"""in place of the middle of a list that was cut"""
_HEALTH_CHECK = "HEALTH_CHECK"
"""begins the id of a request that the server sends itself (srt/constants.py)"""


def without_stamp(line: bytes) -> bytes:
    """The JSON of a line of SGLang's request log; any other line as it is."""
    return _STAMP.sub(b"", line)


def recognises(record: Mapping[str, Any]) -> bool:
    event = record.get("event")
    if isinstance(event, str) and event.startswith("request.") and "obj" in record:
        return True
    return "request_parameters" in record and ("completion_tokens" in record or "output_token_logprobs" in record)


def saved(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """{"request", "response"} as a gateway saves them; None for a record without an answer of a language model."""
    answer: dict[str, Any]
    if "request_parameters" in record:
        request, answer = _decoded(record["request_parameters"]), {"meta_info": record}
    else:
        request, answer = _part(record, "obj"), _part(record, "out")
        if record.get("event") != "request.finished" or str(record.get("rid")).startswith(_HEALTH_CHECK):
            return None
    meta = dict(_part(answer, "meta_info"))
    if "completion_tokens" not in meta or (_aborted(meta) and not meta.get("output_token_logprobs")):
        return None  # no language model's, or ended by the caller before anything was sampled
    response: dict[str, Any] = {"meta_info": meta}
    ids = answer.get("output_ids")
    counted = isinstance(ids, list) and not _is_cut(ids)
    if counted:
        response["output_ids"] = ids
    partial = not counted and request.get("stream") is True
    for name in ("output_token_logprobs", "output_top_logprobs"):
        if _is_cut(meta.get(name)):
            meta[name] = [v for v in meta[name] if v != _CUT]
            partial = True
    if partial:  # the engine's count is of the whole answer
        response.pop("output_ids", None)
        del meta["completion_tokens"]
    return {"request": request, "response": response}


def _part(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = record.get(name)
    return found if isinstance(found, dict) else {}


def _is_cut(values: Any) -> bool:
    """Whether the middle of a list was left out."""
    return isinstance(values, list) and len(values) > 2 and values[len(values) // 2] == _CUT


def _decoded(text: Any) -> dict[str, Any]:
    try:
        found = orjson.loads(text) if isinstance(text, str) else text
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _aborted(meta: Mapping[str, Any]) -> bool:
    reason = meta.get("finish_reason")
    return isinstance(reason, dict) and reason.get("type") == "abort"
