"""The native JSON lines, TRL's names, and what real dumps do to them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np

from posttrain_watchdog.sources.tokens import native


def lines(*records: dict[str, object]) -> list[bytes]:
    return [json.dumps(r).encode() for r in records]


def test_padding_of_the_batch_is_cut_but_a_sampled_pad_id_is_kept() -> None:
    batch = native.read(
        lines(
            {
                "step": 3,
                "completion_ids": [5, 0, 7, 1, 0, 0],
                "completion_mask": [1, 1, 1, 1, 0, 0],
                "sampling_per_token_logps": [-1.0, -2.0, -0.5, -0.1, 0.0, 0.0],
                "old_per_token_logps": None,
                "per_token_logps": [-1.1, -2.1, -0.5, -0.1, -14.0, -15.0],
                "group": 2,
            }
        )
    )
    assert batch.offsets.tolist() == [0, 4]
    assert batch.token_ids is not None
    assert batch.token_ids.tolist() == [5, 0, 7, 1]
    assert batch.trainer_logprobs[0] == np.float32(-1.1)
    assert batch.group is not None
    assert (batch.step.tolist(), batch.group.tolist()) == ([3], [2])


def test_a_mask_that_reaches_into_the_padding_keeps_what_it_covers() -> None:
    batch = native.read(
        lines(
            {"completion_ids": [5, 1, 0, 0], "completion_mask": [0, 1, 1, 0], "sampling_logps": [-1.0, -0.5, 0.0, 0.0]}
        )
    )
    assert batch.offsets.tolist() == [0, 3]
    assert batch.mask.tolist() == [False, True, True]
    assert np.isnan(batch.trainer_logprobs).all()


def test_tool_mask_takes_positions_out_of_the_completion_mask() -> None:
    batch = native.read(
        lines(
            {
                "completion_ids": [5, 6, 7],
                "completion_mask": [1, 1, 1],
                "tool_mask": [1, 0, 1],
                "engine_logprobs": [-1, 0.0, -1],
            },
            {"completion_ids": [5], "completion_mask": [1], "tool_mask": None, "engine_logprobs": [-1]},
        )
    )
    assert batch.mask.tolist() == [True, False, True, True]


def test_null_is_told_from_nan_and_infinity_however_they_are_spelt() -> None:
    batch = native.read(
        [
            b'{"token_ids":[1,2,3,4],"engine_logprobs":["NaN",null,"-Infinity",-1.5],"trainer_logprobs":[-1,-1,-1,-1]}',
            b'{"token_ids":[1,2],"engine_logprobs":[NaN,-Infinity],"trainer_logprobs":[-1,-1]}',
        ]
    )
    assert batch.engine_null is not None
    assert batch.engine_null.tolist() == [False, True, False, False, False, False]
    assert np.isnan(batch.engine_logprobs[[0, 1, 4]]).all()
    assert np.isneginf(batch.engine_logprobs[[2, 5]]).all()


def test_sides_of_unequal_length_keep_both_lengths() -> None:
    batch = native.read(
        lines(
            {
                "token_ids": [1, 2, 3],
                "engine_token_ids": [1, 9],
                "engine_logprobs": [-1.0, -2.0],
                "trainer_logprobs": [-1.0, -3.0, -1.0],
            }
        )
    )
    assert batch.engine_length is not None
    assert batch.trainer_length is not None
    assert batch.engine_token_ids is not None
    assert batch.engine_null is not None
    assert (batch.engine_length.tolist(), batch.trainer_length.tolist()) == ([2], [3])
    assert batch.engine_token_ids.tolist() == [1, 9, -1]
    assert batch.engine_null.tolist() == [False, False, True]


def test_a_sequence_that_nobody_scores_is_not_cut_away() -> None:
    batch = native.read(lines({"token_ids": [1, 2], "mask": [0, 0], "engine_logprobs": None, "trainer_logprobs": []}))
    assert batch.offsets.tolist() == [0, 2]


def test_fields_without_a_place_become_labels_and_extra() -> None:
    batch = native.read(
        lines(
            {
                "token_ids": [1, 2],
                "engine_logprobs": [-1, -1],
                "trainer_logprobs": [-1, -1],
                "replica": "a",
                "cached_tokens": 32,
                "group_id": "g1-0",
                "labels": {"rank": 3},
                "trainer_logps_rescore": [-1.0, -1.25],
                "engine_top_logprobs": [[[7, -2.0], [1, -1.0]], {"2": -1.0}],
            },
            {"token_ids": [3], "engine_logprobs": [-1], "trainer_logprobs": [-1], "group_id": "g1-0"},
        )
    )
    assert batch.labels == {"rank": ["3", ""], "replica": ["a", ""]}
    assert batch.extra["cached_tokens"][0] == 32
    assert batch.extra["trainer_rescored"][1] == np.float32(-1.25)
    assert batch.group is not None
    assert batch.group[0] == batch.group[1] > 0
    assert batch.engine_top_ids is not None
    assert batch.engine_top_ids.tolist() == [[1, 7], [2, -1], [-1, -1]]


def test_recognises_token_records_and_nothing_else() -> None:
    assert native.recognises({"completion_ids": [1], "sampling_per_token_logps": [-1.0]})
    assert native.recognises({"token_ids": [1], "trainer_logprobs": [-1.0], "engine_logprobs": None})
    assert not native.recognises({"step": 1, "loss": 0.1})
    assert not native.recognises({"completion_ids": [1], "prompt": "x"})


def test_every_line_of_every_recording_becomes_a_sequence(recordings: Path) -> None:
    for path in sorted(recordings.glob("*/tokens.jsonl.gz")):
        raw = gzip.decompress(path.read_bytes()).splitlines()[:64]
        batch = native.read(raw)
        assert batch.sequences == len(raw), path
        assert batch.entropy is not None
        assert (np.diff(batch.offsets) > 0).all()
