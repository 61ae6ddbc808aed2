"""The recorder inside a trainer: what it writes is read back, and nothing that happens to it ends a run."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT

from posttrain_watchdog.recorder import Recorder
from posttrain_watchdog.sources import kinds
from posttrain_watchdog.sources.tokens import native


def read(folder: Path) -> native.TokenBatch:
    return native.read([line for path in sorted(folder.iterdir()) for line in path.read_bytes().splitlines()])


def test_a_padded_batch_of_torch_is_read_back_as_it_was(tmp_path: Path) -> None:
    engine = torch.tensor([[-1.25, -0.5, 0.0, 0.0], [-2.0, -3e-7, -0.125, -4.0]], requires_grad=True)
    trainer = torch.tensor([[-1.26, -0.51, -9.0, -9.0], [-2.5, 0.0, -0.5, -5.0]], dtype=torch.bfloat16)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 1]])
    recorder = Recorder(tmp_path, rank=3)
    written = recorder.record(
        step=7,
        engine_logprobs=engine,
        trainer_logprobs=trainer,
        mask=mask,
        token_ids=torch.tensor([[5, 1, 0, 0], [6, 0, 8, 1]]),
        reward=torch.tensor([0.5, 1.0]),
        group=[4, 4],
        temperature=0.85,
        prompt_ids=torch.tensor([[0, 9], [8, 9]]),
        prompt_mask=torch.tensor([[0, 1], [1, 1]]),
    )
    assert (written, recorder.failed, recorder.written) == (2, 0, 2), recorder.last_failure
    assert [p.name for p in tmp_path.iterdir()] == ["tokens-r3-000001.jsonl"]
    assert kinds.classify(next(tmp_path.iterdir())) == kinds.Kind(kinds.TOKENS, "native")
    batch = read(tmp_path)
    assert batch.offsets.tolist() == [0, 2, 6]
    np.testing.assert_array_equal(
        batch.engine_logprobs, engine.detach().numpy()[mask.numpy().cumsum(1) > 0][[0, 1, 4, 5, 6, 7]]
    )
    np.testing.assert_array_equal(batch.trainer_logprobs[2:], trainer[1].float().numpy())
    assert batch.mask.tolist() == [True, True, True, True, False, True]
    assert batch.step.tolist() == [7, 7]
    assert batch.token_ids is not None
    assert batch.token_ids.tolist() == [5, 1, 6, 0, 8, 1]
    assert batch.prompt_ids is not None
    assert [p.tolist() for p in batch.prompt_ids] == [[9], [8, 9]]
    assert batch.reward is not None
    assert batch.reward.tolist() == [0.5, 1.0]
    assert batch.labels["rank"] == ["3", "3"]


def test_float32_survives_the_seven_digits(tmp_path: Path) -> None:
    values = -np.random.default_rng(0).lognormal(-2, 4, 4000).astype(np.float32)
    Recorder(tmp_path).record(step=0, engine_logprobs=values[None], trainer_logprobs=values[None])
    batch = read(tmp_path)
    np.testing.assert_allclose(batch.engine_logprobs, values, rtol=5e-7, atol=1e-7)


def test_ragged_and_packed_arrays_say_the_same(tmp_path: Path) -> None:
    rows = [np.array([-1.0, -2.0], np.float32), np.array([-3.0], np.float32)]
    Recorder(tmp_path / "a").record(step=1, engine_logprobs=rows, trainer_logprobs=[r.tolist() for r in rows])
    packed = np.concatenate(rows)
    offsets = torch.tensor([0, 2, 3])
    Recorder(tmp_path / "b").record(step=1, engine_logprobs=packed, trainer_logprobs=packed, offsets=offsets)
    assert [p.read_bytes() for p in (tmp_path / "a").iterdir()] == [p.read_bytes() for p in (tmp_path / "b").iterdir()]


def test_null_is_told_from_nan(tmp_path: Path) -> None:
    Recorder(tmp_path).record(step=1, engine_logprobs=[[None, float("nan"), -1.0]], trainer_logprobs=[[-1.0] * 3])
    batch = read(tmp_path)
    assert batch.engine_null is not None
    assert batch.engine_null.tolist() == [True, False, False]
    assert np.isnan(batch.engine_logprobs[:2]).all()


def test_nan_infinity_and_sides_of_unequal_length_are_findings_to_keep(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.record(
        step=1,
        engine_logprobs=[np.array([np.nan, -np.inf, -1.0])],
        trainer_logprobs=[[-1.0, -1.0]],
        token_ids=[[1, 2, 3]],
    )
    batch = read(tmp_path)
    assert batch.engine_length is not None
    assert batch.trainer_length is not None
    assert (batch.engine_length.tolist(), batch.trainer_length.tolist()) == ([3], [2])
    assert np.isnan(batch.engine_logprobs[0])
    assert np.isneginf(batch.engine_logprobs[1])


@pytest.mark.parametrize(
    "fields",
    [
        {"engine_logprobs": "nonsense"},
        {"engine_logprobs": np.zeros((2, 3)), "reward": [1.0]},
        {"engine_logprobs": np.zeros(3)},
        {},
        {"engine_logprobs": [[object()]]},
        {"engine_logprobs": np.zeros(3), "offsets": [0, 9]},
    ],
)
def test_what_does_not_fit_is_counted_and_never_raised(
    tmp_path: Path, fields: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert recorder.record(step=1, **fields) == 0  # type: ignore[arg-type]
        assert recorder.record(step=2, **fields) == 0  # type: ignore[arg-type]
    assert recorder.failed == 2
    assert recorder.last_failure
    assert len(caplog.records) == 1


def test_a_full_disk_leaves_whole_lines_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path)
    values = np.full((2, 4), -1.0)
    recorder.record(step=1, engine_logprobs=values, trainer_logprobs=values)
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()
    real, calls = os.write, iter(range(9))

    def full(descriptor: int, data: memoryview) -> int:
        if next(calls):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, bytes(data[:10]))

    with monkeypatch.context() as patched:
        patched.setattr("posttrain_watchdog.recorder.folder.os.write", full)
        assert recorder.record(step=2, engine_logprobs=values, trainer_logprobs=values) == 0
    assert path.read_bytes() == before
    assert "No space left" in recorder.last_failure
    assert recorder.record(step=3, engine_logprobs=values, trainer_logprobs=values) == 2
    assert [json.loads(line)["step"] for line in path.read_bytes().splitlines()] == [1, 1, 3, 3]


def test_a_folder_that_cannot_be_made_is_no_reason_to_stop(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    recorder = Recorder(tmp_path / "taken" / "tokens")
    assert recorder.record(step=1, engine_logprobs=[[-1.0]], trainer_logprobs=[[-1.0]]) == 0
    assert recorder.failed == 1


def test_the_disk_is_bounded_and_only_own_files_go(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("mine")
    (tmp_path / "tokens-r1-000001.jsonl").write_text("of another rank")
    recorder = Recorder(tmp_path, rank=0, max_bytes=4000, keep=3)
    for step in range(100):
        recorder.record(step=step, engine_logprobs=np.full((4, 20), -1.5), trainer_logprobs=np.full((4, 20), -1.5))
    mine = sorted(tmp_path.glob("tokens-r0-*"))
    assert len(mine) == 3
    assert all(p.stat().st_size <= 4000 for p in mine)
    steps = [json.loads(line)["step"] for p in mine for line in p.read_bytes().splitlines()]
    assert steps == sorted(steps)
    assert steps[-1] == 99
    assert (tmp_path / "notes.jsonl").exists()
    assert (tmp_path / "tokens-r1-000001.jsonl").exists()


def test_a_sequence_longer_than_a_file_is_left_out_and_counted(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, max_bytes=500)
    rows = [np.full(1000, -1.5), np.full(2, -1.5)]
    assert recorder.record(step=1, engine_logprobs=rows, trainer_logprobs=rows) == 1
    assert recorder.failed == 1


def test_a_trainer_that_starts_again_begins_a_new_file(tmp_path: Path) -> None:
    for step in (1, 2):
        Recorder(tmp_path).record(step=step, engine_logprobs=[[-1.0]], trainer_logprobs=[[-1.0]])
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["tokens-r0-000001.jsonl", "tokens-r0-000002.jsonl"]


def test_a_fraction_takes_whole_groups_and_the_same_on_every_rank(tmp_path: Path) -> None:
    groups = np.repeat(np.arange(200), 4)
    values = np.full((800, 2), -1.0)
    kept = []
    for rank in (0, 1):
        recorder = Recorder(tmp_path, fraction=0.25, rank=rank)
        recorder.record(step=5, engine_logprobs=values, trainer_logprobs=values, group=groups)
        lines = (tmp_path / f"tokens-r{rank}-000001.jsonl").read_bytes().splitlines()
        kept.append([json.loads(line)["group"] for line in lines])
    assert kept[0] == kept[1]
    assert all(kept[0].count(g) == 4 for g in set(kept[0]))
    assert 25 <= len(set(kept[0])) <= 75


def test_a_forked_process_writes_its_own_file(tmp_path: Path) -> None:
    code = (
        "import os, sys; from posttrain_watchdog.recorder import Recorder; r = Recorder(sys.argv[1])\n"
        "say = lambda s: r.record(step=s, engine_logprobs=[[-1.0]], trainer_logprobs=[[-1.0]])\n"
        "say(1); pid = os.fork(); say(2 if pid else 3); pid and os.waitpid(pid, 0)"
    )
    run_python(code, str(tmp_path))
    files = sorted(tmp_path.iterdir())
    assert [[json.loads(line)["step"] for line in p.read_bytes().splitlines()] for p in files] == [[1, 2], [3]]


def test_it_brings_nothing_but_numpy_into_the_trainer() -> None:
    code = (
        "import sys; from posttrain_watchdog.recorder import Recorder\n"
        "heavy = {'torch', 'pandas', 'orjson', 'pydantic', 'msgspec', 'yaml', 'pyarrow', 'rich'} & set(sys.modules)\n"
        "rest = [m for m in sys.modules if m.startswith('posttrain_watchdog.') and '.recorder' not in m]\n"
        "assert not heavy and not rest, (heavy, rest)"
    )
    run_python(code)


def run_python(code: str, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "watchdog")}
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, env=environment, timeout=60)
