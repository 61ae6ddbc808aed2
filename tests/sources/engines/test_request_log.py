"""SGLang's own log of its requests, judged like answers that a gateway saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain_watchdog.config import RunConfig
from posttrain_watchdog.feed import open_feeds
from posttrain_watchdog.intake import Intake
from posttrain_watchdog.sources import kinds
from posttrain_watchdog.sources.engines import request_log
from posttrain_watchdog.sources.engines.monitor import EngineMonitor
from posttrain_watchdog.sources.engines.responses import Answer, read
from posttrain_watchdog.sources.readers import Answers

# a line of SGLang 0.5.23, --log-requests-level 3 --log-requests-format json
FINISHED = (
    b'[2026-11-30 12:00:01] {"timestamp": "2026-11-30T12:00:01.123456", "event": "request.finished", "rid": "c0ffee", '
    b'"obj": {"rid": "c0ffee", "session_id": null, "text": null, "input_ids": [151644, 872, 198], "sampling_params": '
    b'{"temperature": 0.9, "top_p": 1.0, "top_k": -1, "max_new_tokens": 8192, "skip_special_tokens": false}, '
    b'"return_logprob": true, "logprob_start_len": -1, "top_logprobs_num": 2, "token_ids_logprob": null, '
    b'"stream": false, "log_metrics": true}, "out": {"text": "4<|im_end|>", "output_ids": [19, 151645], "meta_info": '
    b'{"id": "c0ffee", "finish_reason": {"type": "stop", "matched": 151645}, "prompt_tokens": 3, "weight_version": '
    b'"default", "num_retractions": 0, "input_token_logprobs": [[null, 198, null]], "output_token_logprobs": '
    b'[[-0.1201, 19, null], [-0.5, 151645, null]], "output_token_logprobs_length": 2, "input_top_logprobs": [null], '
    b'"output_top_logprobs": [[[-0.1201, 19, null], [-2.5, 17, null]], [[-0.5, 151645, null], [-1.5, 198, null]]], '
    b'"reasoning_tokens": 0, "completion_tokens": 2, "cached_tokens": 0, "e2e_latency": 1.2, '
    b'"response_sent_to_client_ts": 1.5}}}'
)
RECEIVED = (
    b'[2026-11-30 12:00:00] {"timestamp": "2026-11-30T12:00:00.123456", "event": "request.received", "rid": "c0ffee", '
    b'"obj": {"input_ids": [151644, 872, 198], "sampling_params": {"temperature": 0.9}}}'
)
OPENAI = (
    b'[2026-11-30 12:00:00] {"timestamp": "2026-11-30T12:00:00.1", "event": "request.received.openai", '
    b'"obj": {"messages": [{"role": "user", "content": "hi"}], "model": "m", "logprobs": true}}'
)


def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FINISHED[FINISHED.index(b"{") :])
    return found


def logged(changed: dict[str, Any]) -> bytes:
    return b"[2026-11-30 12:00:01] " + json.dumps(changed, ensure_ascii=False).encode()


def exported() -> bytes:
    """The same request as --export-metrics-to-file writes it."""
    whole = record()
    return json.dumps({"request_parameters": json.dumps(whole["obj"]), **whole["out"]["meta_info"]}).encode()


def one(line: bytes) -> Answer:
    (answer,) = read([line])
    return answer


def faults(*lines: bytes) -> dict[str, float]:
    monitor = EngineMonitor()
    monitor.read(lines)
    name = "posttrain_engine_response_faults_total"
    return {dict(m.labels)["fault"]: v for m, v in monitor.row().values.items() if m.name == name}


def test_a_logged_request_is_the_answer_that_a_gateway_would_save() -> None:
    whole = record()
    saved = {"request": whole["obj"], "status": 200, "response": whole["out"]}
    assert one(FINISHED) == one(json.dumps(saved).encode())
    assert one(FINISHED).settings.temperature == 0.9
    assert len(one(FINISHED).positions) == 2
    assert one(exported()) == one(FINISHED)


def test_what_is_no_answer_gives_none() -> None:
    health, embedding = record(), record()
    health["rid"] = "HEALTH_CHECK_1732968001.1"
    embedding["out"] = {"embedding": [0.1], "meta_info": {"id": "e", "prompt_tokens": 3, "e2e_latency": 0.1}}
    aborted = record()
    meta = aborted["out"]["meta_info"]
    meta["finish_reason"] = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
    meta["output_token_logprobs"], aborted["out"]["output_ids"], meta["completion_tokens"] = [], [], 1
    assert list(read([RECEIVED, OPENAI, logged(health), logged(embedding), logged(aborted), b"", b"[x] {"])) == []


def test_the_file_is_known_by_its_content_and_followed_live(tmp_path: Path) -> None:
    path = tmp_path / "node1_0.log"
    path.write_bytes(b"\n".join([OPENAI, RECEIVED, FINISHED, b""]))
    assert kinds.classify(path) == kinds.Kind(kinds.RESPONSES)
    (feed,), _ = open_feeds([path], RunConfig())
    (item,) = feed
    assert isinstance(item, Answers) and len(item.answers) == 1
    intake = Intake(RunConfig(paths=[str(path)]))
    assert len(list(intake.poll(0.0))) == 1
    with path.open("ab") as file:
        file.write(FINISHED + b"\n")
    assert len(list(intake.poll(1.0))) == 1
    intake.close()


@pytest.mark.parametrize("form", ["log", "export"])
def test_the_judgements_of_saved_answers_are_made(form: str) -> None:
    whole = record()
    for pair in whole["out"]["meta_info"]["output_token_logprobs"]:
        pair[0] = 0.0
    export = {"request_parameters": json.dumps(whole["obj"]), **whole["out"]["meta_info"]}
    line = logged(whole) if form == "log" else json.dumps(export).encode()
    assert faults(line) == {"all_zero": 1.0}
    monitor = EngineMonitor()
    monitor.read([line] * 5)
    assert [d.cause for d in monitor.diagnoses() if d.confidence >= 0.5] == ["engine_logprobs_missing"]


def test_logprobs_that_were_asked_for_and_are_not_there() -> None:
    whole = record()
    del whole["out"]["meta_info"]["output_token_logprobs"]
    assert faults(logged(whole)) == {"missing": 1.0}
    whole["obj"]["return_logprob"] = False
    assert faults(logged(whole)) == {}


@pytest.mark.parametrize("level", [0, 1])
def test_what_a_low_level_leaves_out_is_not_missing(level: int) -> None:
    whole = record()
    del whole["obj"]["text"], whole["obj"]["input_ids"], whole["out"]["text"], whole["out"]["output_ids"]
    if level == 0:
        del whole["obj"]["sampling_params"]
    assert faults(logged(whole)) == {}
    assert one(logged(whole)).tokens == 2


def test_level_2_cuts_the_middle_of_a_long_answer() -> None:
    whole = record()
    meta = whole["out"]["meta_info"]
    pairs = [[-0.5, 19, None]] * 1024
    meta["output_token_logprobs"] = [*pairs, "...", *pairs]
    meta["output_top_logprobs"] = [*[[pair] for pair in pairs], "...", *[[pair] for pair in pairs]]
    meta["completion_tokens"] = 5000
    whole["out"]["output_ids"] = [*[19] * 1024, "...", *[19] * 1024]
    assert faults(logged(whole)) == {}
    answer = one(logged(whole))
    assert answer.logprobs is not None
    assert (answer.tokens, len(answer.logprobs), len(answer.listed)) == (-1, 2048, 2048)


def test_the_last_piece_of_a_stream_is_no_short_answer() -> None:
    whole = record()
    whole["obj"]["stream"] = True
    whole["out"]["meta_info"]["completion_tokens"] = 900
    assert faults(logged(whole)) == {}
    del whole["out"]["output_ids"]
    assert faults(logged(whole)) == {}


HOSTILE: list[Any] = [None, "x", 1, 1.5, True, [], {}, [[]], [None], {"a": {"b": [1]}}, 10**400, float("nan")]


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_hostile_values_do_no_harm(value: Any) -> None:
    places = [("obj",), ("out",), ("rid",), ("event",), ("out", "meta_info"), ("out", "output_ids"), ("obj", "stream")]
    places += [("obj", "sampling_params"), ("obj", "return_logprob"), ("obj", "top_logprobs_num")]
    meta = ("finish_reason", "output_token_logprobs", "output_top_logprobs", "completion_tokens")
    places += [("out", "meta_info", name) for name in meta]
    for *way, last in places:
        whole = record()
        inner = whole
        for name in way:
            inner = inner[name]
        inner[last] = value
        monitor = EngineMonitor()
        monitor.read([logged(whole), FINISHED])
        assert monitor.answers >= 1, last
        monitor.diagnoses()
    export = json.loads(exported())
    for last in (*meta, "request_parameters"):
        monitor = EngineMonitor()
        monitor.read([json.dumps({**export, last: value}).encode(), FINISHED])
        assert monitor.answers >= 1, last


def test_a_line_without_the_log_s_time_is_left_as_it_is() -> None:
    assert request_log.without_stamp(b'{"a": "[x] {"}') == b'{"a": "[x] {"}'
    assert request_log.without_stamp(b'[2026-11-30 12:00:01] {"a": 1}') == b'{"a": 1}'
