"""The records that travel keep their shape when they are cut."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from posttrain_watchdog import model
from posttrain_watchdog.model import Metric, TokenBatch


def batch_of(lengths: list[int], steps: list[int]) -> TokenBatch:
    total = sum(lengths)
    values: npt.NDArray[np.float32] = np.arange(total, dtype=np.float32)
    return TokenBatch(
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        engine_logprobs=-values,
        trainer_logprobs=-values - 1,
        mask=np.ones(total, dtype=np.bool_),
        step=np.array(steps, dtype=np.int64),
        token_ids=values.astype(np.int32),
        reward=np.array(steps, dtype=np.float32),
        labels={"replica": [f"r{s}" for s in steps]},
        finish_reason=["stop"] * len(steps),
        prompt_ids=[np.array([s], dtype=np.int32) for s in steps],
    )


def test_selected_sequences_keep_their_own_tokens() -> None:
    cut = batch_of([2, 0, 3, 1], [5, 6, 7, 8]).select(np.array([3, 0]))
    assert cut.offsets.tolist() == [0, 1, 3]
    assert cut.engine_logprobs.tolist() == [-5, 0, -1]
    assert cut.token_ids is not None and cut.token_ids.tolist() == [5, 0, 1]
    assert cut.labels["replica"] == ["r8", "r5"]
    assert cut.reward is not None and cut.reward.tolist() == [8, 5]


def test_a_batch_of_several_steps_is_cut_in_order_of_steps() -> None:
    parts = list(batch_of([1, 2, 3], [4, 3, 4]).by_step())
    assert [(s, p.tokens) for s, p in parts] == [(3, 2), (4, 4)]
    assert parts[1][1].engine_logprobs.tolist() == [0, -3, -4, -5]


def test_every_array_of_a_batch_says_which_axis_it_has() -> None:
    text = Path(model.__file__).read_text(encoding="utf-8").split("class TokenBatch:")[1]
    described = dict(re.findall(r"^    (\w+): NDArray[^\n]*\n    \"\"\"\[([ST])", text, flags=re.MULTILINE))
    arrays = {f.name for f in fields(TokenBatch)} & set(described)
    assert len(arrays) > 10
    assert {n for n in arrays if described[n] == "T"} == model.PER_TOKEN


def test_metrics_with_the_same_labels_are_the_same_whatever_the_order() -> None:
    assert Metric("a", {"x": "1", "y": "2"}) == Metric("a", (("y", "2"), ("x", "1")))
    assert len({Metric("a", {"x": "1"}), Metric("a", {"x": "1", "empty": ""})}) == 1
    assert Metric("a", {"run": "own"}).with_labels({"run": "other", "k": "v"}).labels == (("k", "v"), ("run", "own"))
