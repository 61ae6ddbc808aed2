"""SGLang's own records of its requests: the log (`[time] {json}`) and the exported request metrics.

Promises: knows both by content, so that a generated text in them is never taken for a log line; gives the engine's
side alone (`ONE_SIDED`: there is no trainer in them to compare with). `output_token_logprobs` are after the
temperature and before top-k and top-p.

Source: SGLang 0.5.23 request_logger (level 3, json) and request_metrics_exporter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from posttrain_watchdog.model import TokenBatch
from posttrain_watchdog.sources.tokens import native

ONE_SIDED = True


def recognises(record: Mapping[str, Any]) -> bool:
    event = record.get("event")
    if isinstance(event, str) and event.startswith("request.") and "rid" in record:
        return True
    return "request_parameters" in record and ("completion_tokens" in record or "output_token_logprobs" in record)


def read(lines: Sequence[bytes]) -> TokenBatch:
    """Finished requests that asked for logprobs, as one batch without trainer. Raises ValueError as native does."""
    bare = [line[line.find(b"{") :] for line in lines if b"{" in line]
    found = []
    for record in native.records(bare):
        asked, answer = _parts(record)
        logprobs = answer.get("output_token_logprobs")
        if isinstance(logprobs, list) and logprobs:
            found.append(_sequence(asked, answer, logprobs))
    return native.from_records(found)


def _parts(record: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """(sampling parameters, meta_info) of either form."""
    if "request_parameters" in record:
        asked = record["request_parameters"]
        if isinstance(asked, str):
            try:
                asked = orjson.loads(asked)
            except orjson.JSONDecodeError:
                asked = {}
        answer: Any = record
    else:
        asked, out = record.get("obj"), record.get("out")
        answer = out.get("meta_info") if isinstance(out, dict) else None
    sampling = asked.get("sampling_params") if isinstance(asked, dict) else None
    return sampling if isinstance(sampling, dict) else {}, answer if isinstance(answer, dict) else {}


def _sequence(asked: Mapping[str, Any], answer: Mapping[str, Any], logprobs: Sequence[Any]) -> dict[str, Any]:
    pairs = [p if isinstance(p, list) and len(p) >= 2 else (None, -1) for p in logprobs]
    reason = answer.get("finish_reason")
    return {
        "engine_logprobs": [p[0] for p in pairs],
        "token_ids": [p[1] for p in pairs],
        "temperature": asked.get("temperature"),
        "prompt_length": answer.get("prompt_tokens"),
        "weight_version": answer.get("weight_version"),
        "finish_reason": reason.get("type") if isinstance(reason, dict) else reason,
    }
