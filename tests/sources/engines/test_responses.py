"""Answers as engines give them, and what they add up to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain_watchdog.model import Diagnosis, Event, Metric
from posttrain_watchdog.sources.engines.calibration import calibrate
from posttrain_watchdog.sources.engines.monitor import EngineMonitor
from posttrain_watchdog.sources.engines.response_tally import Tally
from posttrain_watchdog.sources.engines.responses import Answer, Position, read, recognises
from posttrain_watchdog.vocabulary.engine import PREFIX


def lines(*records: object) -> list[bytes]:
    return [json.dumps(r).encode() for r in records]


def judged(given: Sequence[bytes], starts: Iterable[Event] = (), temperature: float | None = None) -> list[Diagnosis]:
    monitor = EngineMonitor(temperature)
    for event in starts:
        monitor.observe(event)
    monitor.read(given)
    return monitor.diagnoses()


def aloud(found: list[Diagnosis]) -> list[str]:
    return [d.cause for d in found if d.confidence >= 0.5]


def completion(request: dict[str, Any] | None, logprobs: Any, tokens: int = 3, **choice: Any) -> dict[str, Any]:
    response = {
        "object": "text_completion",
        "choices": [{"index": 0, "text": "x", "logprobs": logprobs, "finish_reason": "stop", **choice}],
        "usage": {"prompt_tokens": 2, "completion_tokens": tokens},
    }
    return response if request is None else {"request": request, "status": 200, "response": response}


ASKED = {"prompt": "p", "temperature": 0.7, "logprobs": 1}
GOOD = {"tokens": ["a", "b", "c"], "token_logprobs": [-0.5, -1.0, -0.25], "top_logprobs": None}


# --- shapes


def test_the_shapes_of_recorded_answers(recordings: Path) -> None:
    folder = recordings / "vllm-processed_logprobs"
    for name, shape in (("completions_t085.jsonl", "completions"), ("chat_t085.jsonl", "chat")):
        found = list(read((folder / name).read_bytes().splitlines()))
        assert found and all(a.shape == shape and a.status == 200 and a.vllm for a in found)
        for answer in found:
            assert answer.logprobs is not None and len(answer.logprobs) == answer.tokens
            assert answer.settings.temperature == 0.85 and answer.prompt_given == answer.settings.prompt_logprobs
            assert not answer.settings.truncated and not answer.settings.penalised


def test_odd_requests_are_no_faults(recordings: Path) -> None:
    found = list(read((recordings / "vllm-processed_logprobs" / "odd.jsonl").read_bytes().splitlines()))
    assert sum(a.shape == "error" for a in found) == 2
    echoed = next(a for a in found if a.tokens == 4 and len(a.openings) and a.settings.logprobs == 2)
    assert echoed.logprobs is not None and len(echoed.logprobs) == 4, "echoed prompt tokens are not counted"
    assert any(a.settings.penalised for a in found), "logit_bias"
    assert sum(len(a.logprobs or ()) for a in found if a.settings.logprobs is None) == 0


def test_sglang_answers_one_and_many() -> None:
    request = {
        "text": "p",
        "sampling_params": {"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1},
        "return_logprob": True,
        "top_logprobs_num": 2,
    }
    meta = {
        "completion_tokens": 2,
        "output_token_logprobs": [[-0.5, 11, None], [-3.0, 12, None]],
        "output_top_logprobs": [[[-0.5, 11, None], [-1.5, 7, None]], [[-0.3, 9, None], [-2.0, 8, None]]],
    }
    one = {"text": "x", "output_ids": [11, 12], "meta_info": meta}
    found = list(read(lines({"request": request, "response": [one, one]}, one)))
    assert [a.shape for a in found] == ["sglang"] * 3
    settings = found[0].settings
    assert (settings.temperature, settings.truncated, settings.penalised, settings.logprobs) == (0.6, True, True, 2)
    assert found[0].positions == [Position(-0.5, True, (-0.5, -1.5)), Position(-3.0, False, (-0.3, -2.0))]
    assert not found[2].settings.known


def test_words_that_are_no_json_numbers() -> None:
    raw = b'{"choices": [{"text": "x", "logprobs": {"tokens": ["a"], "token_logprobs": [NaN], "top_logprobs": null}}]}'
    assert len(list(read([raw, b"", b"{", b"[1]", b'{"loss": 1}']))) == 1
    assert not recognises({"loss": 1.0}) and not recognises({"choices": 3})


def test_hostile_answers_do_no_harm() -> None:
    odd: list[Any] = [
        completion(ASKED, {"tokens": 1, "token_logprobs": ["x", None, True], "top_logprobs": [1, {"a": []}, None]}),
        completion(ASKED, {"content": [1, {"token": 3, "logprob": "-inf", "top_logprobs": [4, {"logprob": 1e999}]}]}),
        {"request": "no json", "status": "200", "response": "{"},
        {"request": {"sampling_params": [], "seed": 1e300, "logprobs": -5}, "response": {"meta_info": 7}},
        {"request": ASKED, "response": {"choices": [None, 3, {"logprobs": [], "token_ids": 4}], "usage": 9}},
        {"meta_info": {"output_token_logprobs": [1, [], ["a", "b"]], "output_top_logprobs": [[], 2, [[]]]}},
    ]
    monitor = EngineMonitor()
    monitor.read(lines(*odd))
    monitor.row()
    monitor.diagnoses()


@pytest.mark.parametrize(
    ("token", "value", "top", "position"),
    [
        ("a", -1.0, {"a": -1.0, "b": -2.0}, Position(-1.0, True, (-1.0, -2.0))),
        ("c", -5.0, {"c": -5.0, "a": -1.0, "b": -2.0}, Position(-5.0, False, (-1.0, -2.0))),
        ("", -5.0, {"": -5.0, "a": -1.0, "b": -2.0}, Position(-5.0, False, (-1.0, -2.0))),
        ("", -1.0, {"": -1.0, "b": -2.0}, None),  # another token without text may have fallen together with it
        ("", -1.0, {"": -2.0, "a": -1.5}, None),  # it has: the number is that of another
        ("a", -1.0, {"a": -1.0, "\ufffd": -2.0}, None),
        ("a", -1.0, {"a": -1.0}, None),
        ("a", -1.0, {"a": -1.0, "b": -9999.0}, Position(-1.0, True, (-1.0,))),
    ],
)
def test_candidate_sets_do_not_depend_on_the_draw(
    token: str, value: float, top: dict[str, float], position: Position | None
) -> None:
    block = {"tokens": [token], "token_logprobs": [value], "top_logprobs": [top]}
    (answer,) = read(lines(completion({**ASKED, "logprobs": 2}, block, tokens=1)))
    assert answer.positions == ([position] if position else [])


# --- faults


@pytest.mark.parametrize(
    ("logprobs", "cause"),
    [
        (None, "engine_logprobs_missing"),
        ({**GOOD, "token_logprobs": []}, "engine_logprobs_missing"),
        ({**GOOD, "token_logprobs": [-0.5, None, -0.25]}, "engine_logprobs_missing"),
        ({**GOOD, "token_logprobs": [0.0, 0.0, 0.0]}, "engine_logprobs_missing"),
        ({**GOOD, "token_logprobs": [-0.5, -1.0]}, "length_mismatch"),
        ({**GOOD, "token_logprobs": [-0.5, -9999.0, -1.0]}, "non_finite"),
        ({**GOOD, "token_logprobs": ["NaN", -1.0, -1.0]}, "non_finite"),
        ({**GOOD, "token_logprobs": [3.5, 8.0, 2.0]}, "logits_not_logprobs"),
    ],
)
def test_a_fault_in_every_answer(logprobs: Any, cause: str) -> None:
    assert aloud(judged(lines(*[completion(ASKED, logprobs)] * 5))) == [cause]


def test_one_faulty_answer_of_many_is_not_said_aloud() -> None:
    assert aloud(judged(lines(*[completion(ASKED, GOOD)] * 50, completion(ASKED, None)))) == []


def test_logprobs_that_nobody_asked_for_are_not_missing() -> None:
    asked = {k: v for k, v in ASKED.items() if k != "logprobs"}
    assert judged(lines(*[completion(asked, None)] * 5)) == []
    assert judged(lines(*[completion(None, None)] * 5)) == [], "bare answers: nobody knows"


def test_prompt_logprobs_asked_for_and_not_there() -> None:
    asked = {**ASKED, "prompt_logprobs": 0}
    assert aloud(judged(lines(*[completion(asked, GOOD)] * 4))) == ["prompt_logprobs_missing"]
    there = completion(asked, GOOD, prompt_logprobs=[None, {"5": {"logprob": -1.0}}])
    single = completion(asked, GOOD, prompt_logprobs=[None])
    assert judged(lines(*[there] * 4, *[single] * 4)) == []


def test_a_limit_of_the_engine_that_refuses_every_request() -> None:
    message = "Requested sample logprobs of 50, which is greater than max allowed: 20"
    refused = {"request": {**ASKED, "logprobs": 50}, "status": 400, "response": {"error": {"message": message}}}
    (found,) = judged(lines(*[refused] * 4))
    assert found.cause == "engine_logprobs_missing" and "max allowed" in str(found.evidence["example"])


def test_steps_of_the_stream_date_the_fault() -> None:
    records = [{**completion(ASKED, GOOD if step < 7 else None), "step": step} for step in range(12)]
    (found,) = judged(lines(*records))
    assert found.first_step == 7


# --- the sampling distribution


def sampled(
    seed: int, beta: float, answers: int = 40, tokens: int = 20, peaked: float = 1.5
) -> tuple[list[Position], list[int]]:
    """Tokens of a random model, drawn at `beta` times the reported logprobs, beside the 5 best candidates."""
    rng = np.random.default_rng(seed)
    logits = peaked * rng.standard_normal((answers * tokens, 100))
    reported = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    drawn = np.argmax(beta * reported + rng.gumbel(size=reported.shape), axis=1)
    order = np.argsort(-reported, axis=1)[:, :5]
    positions = [
        Position(float(row[s]), bool(s in best), tuple(float(v) for v in row[best]))
        for row, s, best in zip(reported, drawn, order, strict=True)
    ]
    return positions, [i // tokens for i in range(len(positions))]


@pytest.mark.parametrize("beta", [0.7, 1.0, 1 / 0.85, 1.6])
def test_the_estimate_and_its_error_hold(beta: float) -> None:
    deviates = []
    for seed in range(25):
        found = calibrate(*sampled(seed, beta))
        assert found is not None
        deviates.append(found.distance(beta))
    assert abs(np.mean(deviates)) < 0.7, "unbiased: 3.5 standard errors of the mean of 25"
    assert 0.6 < np.std(deviates) < 1.5, "the standard error is neither too small nor too large"


def test_dependent_answers_count_as_one_witness() -> None:
    positions, clusters = sampled(1, 1.0, answers=30)
    once, thrice = calibrate(positions, clusters), calibrate(positions * 3, clusters * 3)
    assert once is not None and thrice is not None
    assert thrice.error == pytest.approx(once.error, rel=1e-6)


def test_answers_with_one_seed_are_one_cluster() -> None:
    block = {"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": [{"a": -1.0, "b": -1.5}]}
    for seeds, clusters in (([1, 1, 2, 2], 2), ([None] * 4, 4)):
        tally = Tally()
        for seed in seeds:
            for answer in read(lines(completion({**ASKED, "logprobs": 2, "seed": seed}, block, tokens=1))):
                tally.add(answer)
        assert [c.clusters for c in tally.calibrations().values()] == [clusters]


def opening(prompt: int, temperature: float, scale: float) -> dict[str, Any]:
    top = {name: -2 - scale * number for number, name in enumerate("abcd", 1)}
    block = {"tokens": ["a"], "token_logprobs": [top["a"]], "top_logprobs": [top]}
    return completion({"prompt": str(prompt), "temperature": temperature, "logprobs": 4, "seed": 1}, block, tokens=1)


def test_one_context_at_two_temperatures_decides() -> None:
    raw = [opening(n, t, 0.5) for n in range(4) for t in (0.5, 1.0)]
    processed = [opening(n + 10, t, 0.5 / t) for n in range(4) for t in (0.5, 1.0)]
    vllm = [{**r, "response": {**r["response"], "kv_transfer_params": None}} for r in raw + processed]
    assert aloud(judged(lines(*vllm[:8]))) == ["logprobs_mode_raw"]
    assert judged(lines(*vllm[8:])) == []
    assert judged(lines(*vllm)) == [], "contradicting contexts decide nothing"


def test_too_few_answers_say_nothing() -> None:
    found = calibrate(*sampled(1, 2.0, answers=3))
    assert found is not None and found.surprise() == 1.0
    assert calibrate([], []) is None


def answered(seed: int, temperature: float, mode: str, answers: int = 40, vllm: bool = True) -> list[bytes]:
    """Chat answers of a random engine in a logprobs mode."""
    rng = np.random.default_rng(seed)
    out = []
    for number in range(answers):
        content = []
        for logits in 2.0 * rng.standard_normal((40, 100)):
            drawn = int(np.argmax(logits / temperature + rng.gumbel(size=100)))
            shown = logits / temperature if mode == "processed" else logits
            shown = shown - np.log(np.exp(shown).sum())
            best = [int(i) for i in np.argsort(-shown)[:5]]
            listed = best if drawn in best else [drawn, *best[:4]]
            top = [{"token": f"t{i}", "logprob": float(shown[i])} for i in listed]
            content.append({"token": f"t{drawn}", "logprob": float(shown[drawn]), "top_logprobs": top})
        request = {"messages": [{"content": str(number)}], "temperature": temperature, "logprobs": True}
        request["top_logprobs"] = 5
        choice = {"index": 0, "message": {"content": "x"}, "logprobs": {"content": content}}
        response = {"choices": [choice], **({"kv_transfer_params": None} if vllm else {})}
        out.append(json.dumps({"request": request, "status": 200, "response": response}).encode())
    return out


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_raw_logprobs_are_told_from_processed_ones_by_the_answers_alone(seed: int, temperature: float) -> None:
    raw = judged(answered(seed, temperature, "raw"))
    assert aloud(raw) == ([] if temperature == 1.0 else ["logprobs_mode_raw"])
    assert judged(answered(seed, temperature, "processed")) == []


def test_an_unknown_engine_is_suspected_less() -> None:
    (known,) = judged(answered(1, 0.6, "raw"))
    (unknown,) = judged(answered(1, 0.6, "raw", vllm=False))
    assert known.confidence > 0.9 > unknown.confidence >= 0.5


def test_the_temperature_is_published_with_its_error() -> None:
    monitor = EngineMonitor()
    monitor.read(answered(5, 0.6, "raw"))
    name, labels = PREFIX + "sampling_temperature_over_reported", {"temperature": "0.6"}
    values = monitor.row(9.0).values
    error = values[Metric(name + "_error", labels)]
    assert abs(values[Metric(name, labels)] - 0.6) < 4 * error and error < 0.05


def test_a_temperature_known_from_the_trainer_only() -> None:
    given = [line.replace(b'"temperature": 0.6, ', b"") for line in answered(7, 0.6, "raw")]
    assert judged(given) == []
    assert aloud(judged(given, temperature=0.6)) == ["logprobs_mode_raw"]


def start(mode: str, version: str = "0.31.0") -> Event:
    return Event("engine_started", "", {"engine_family": "vllm", "version": version, "logprobs_mode": mode})


@pytest.mark.parametrize(
    ("event", "temperature", "cause"),
    [
        (start("raw_logprobs"), 0.85, "logprobs_mode_raw"),
        (start("raw_logprobs"), 1.0, None),
        (start("raw_logprobs"), None, None),
        (start("processed_logprobs"), 0.85, None),
        (start("processed_logprobs", "0.10.1.1"), 0.85, "logprobs_mode_raw"),
        (start("raw_logits"), 1.0, "logits_not_logprobs"),
    ],
)
def test_an_engine_that_says_its_mode(event: Event, temperature: float | None, cause: str | None) -> None:
    assert aloud(judged([], [event], temperature)) == ([cause] if cause else [])


@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize(
    ("recording", "cause"),
    [
        ("vllm-raw_logprobs", "logprobs_mode_raw"),
        ("vllm-raw_logits", "logits_not_logprobs"),
        ("vllm-processed_logprobs", None),
    ],
)
def test_recorded_engines(recordings: Path, recording: str, cause: str | None, with_log: bool) -> None:
    from posttrain_watchdog.sources.engines import vllm

    folder = recordings / recording
    dialect = vllm.Dialect()
    log = (folder / "server.log").read_text().splitlines()
    starts = [e for line in log for e in dialect.feed(line) if isinstance(e, Event)] if with_log else []
    monitor = EngineMonitor()
    for event in starts:
        monitor.observe(event)
    for path in sorted(folder.glob("*.jsonl")):
        monitor.read(path.read_bytes().splitlines())
    assert aloud(monitor.diagnoses()) == ([cause] if cause else [])


def test_an_answer_is_kept_whole() -> None:
    (answer,) = read(lines(completion(ASKED, GOOD)))
    assert isinstance(answer, Answer) and answer.logprobs == [-0.5, -1.0, -0.25] and answer.context
