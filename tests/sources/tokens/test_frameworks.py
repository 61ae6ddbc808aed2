"""Token dumps of the frameworks: what they write literally, and what must not be read of them."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from conftest import ROOT

from posttrain_watchdog.alerting.rules import RuleSet
from posttrain_watchdog.config import Config, RunConfig
from posttrain_watchdog.consistency.monitor import Monitor
from posttrain_watchdog.feed import open_feeds
from posttrain_watchdog.intake import Intake
from posttrain_watchdog.model import Event, Metric, Row, TokenBatch
from posttrain_watchdog.pipeline import Pipeline
from posttrain_watchdog.replay import replay
from posttrain_watchdog.sources import attempts, kinds
from posttrain_watchdog.sources.tokens import nemo_rl, parquet, prime_rl, prime_rl_traces, roll, skyrl, slime

DATA = ROOT / "tests" / "data" / "tokens"


def lines(name: str) -> list[bytes]:
    return (DATA / name).read_bytes().splitlines()


def batches(*paths: Path) -> tuple[list[TokenBatch], list[tuple[str, str]]]:
    """What a replay of these files gives, and what it refuses."""
    feeds, refused = open_feeds(paths, RunConfig())
    found: list[TokenBatch] = []
    for feed in feeds:
        try:
            found += [item for item in feed if isinstance(item, TokenBatch)]
        except ValueError as error:
            refused.append((feed.path, str(error)))
    return found, refused


@pytest.mark.parametrize(
    ("name", "kind", "dialect"),
    [
        ("exp_001/train_data_step3.jsonl", kinds.TOKENS, "nemo_rl"),
        ("token_exports/step_12/rank_0.jsonl", kinds.TOKEN_FILE, "prime_rl"),
        ("traces.jsonl", kinds.TOKENS, "prime_rl_traces"),
        ("sglang_requests.log", kinds.RESPONSES, ""),
        ("sglang_metrics.log", kinds.RESPONSES, ""),
        ("verl_rollouts.jsonl", kinds.TOKENS, "verl"),
        ("roll_board.jsonl", kinds.TOKENS, "roll"),
    ],
)
def test_a_dump_is_known_by_its_content(name: str, kind: str, dialect: str, tmp_path: Path) -> None:
    renamed = tmp_path / "something.txt"
    shutil.copy(DATA / name, renamed)
    assert kinds.classify(renamed) == kinds.Kind(kind, dialect)


# --- NeMo-RL


def test_nemo_rl_padding_prompt_and_first_position_are_cut() -> None:
    batch = nemo_rl.read(lines("exp_001/train_data_step3.jsonl"), Path("exp_001/train_data_step3.jsonl"))
    assert batch.step.tolist() == [3, 3]
    assert batch.offsets.tolist() == [0, 3, 5]
    np.testing.assert_allclose(batch.engine_logprobs[:3], [-0.1201, -0.0023, -0.5104], rtol=1e-6)
    np.testing.assert_allclose(batch.trainer_logprobs[:3], [-0.1187, -0.0024, -0.5166], rtol=1e-6)
    assert batch.token_ids is not None
    assert batch.token_ids[:3].tolist() == [17, 19, 151645]
    assert batch.prompt_length is not None
    assert batch.prompt_length.tolist() == [3, 3]


def test_nemo_rl_a_sequence_taken_out_of_the_loss_is_masked_and_its_nan_is_kept() -> None:
    batch = nemo_rl.read(lines("exp_001/train_data_step3.jsonl"))
    assert batch.mask.tolist() == [True, True, True, False, False]
    assert np.isnan(batch.engine_logprobs[4])
    assert batch.engine_null is None or not batch.engine_null[4]


def test_nemo_rl_a_skipped_trainer_pass_is_absent_not_certain() -> None:
    assert nemo_rl.read(lines("exp_001/train_data_step4.jsonl")).sequences == 0


def test_nemo_rl_a_resumed_run_counts_a_step_once(tmp_path: Path) -> None:
    for run in ("exp_001", "exp_002"):
        shutil.copytree(DATA / run, tmp_path / run)
    found, refused = batches(tmp_path)
    assert [b.sequences for b in found if 3 in b.step] == [2]
    assert [(Path(p).parent.name, why) for p, why in refused] == [("exp_001", "a resumed run wrote this step again")]


def test_nemo_rl_the_daemon_counts_a_step_of_a_resumed_run_once(tmp_path: Path) -> None:
    shutil.copytree(DATA / "exp_001", tmp_path / "exp_001")
    intake = Intake(RunConfig(paths=[str(tmp_path)]))
    pipeline = Pipeline(Config(runs=[RunConfig(name="r")]), RuleSet([]))
    run = pipeline.run(RunConfig(name="r"))
    for _, item in intake.poll(0.0):
        run.take(item, 0.0)
    shutil.copytree(DATA / "exp_002", tmp_path / "exp_002")
    for _, item in intake.poll(1.0):
        run.take(item, 1.0)
    intake.close()
    pipeline.tick(2.0, final=True)
    replayed = replay([tmp_path], Config(), RuleSet([])).runs[0].metrics
    for name in ("posttrain_tokens_compared", "posttrain_sequences_compared", "posttrain_kl_k3"):
        assert run.live.value(Metric(name)) == replayed[name]


@pytest.mark.parametrize("how", ["emptied", "replaced", "packed"])
def test_a_dump_that_is_written_anew_counts_once(how: str, tmp_path: Path) -> None:
    first = b'{"step": 5, "engine_logprobs": [-1.0, -2.0], "trainer_logprobs": [-1.5, -2.5]}\n' * 3
    second = b'{"step": 5, "engine_logprobs": [-0.1], "trainer_logprobs": [-0.1]}\n'
    path = tmp_path / "samples.jsonl"
    path.write_bytes(gzip.compress(first) if how == "packed" else first)
    intake, monitor = Intake(RunConfig(paths=[str(path)])), Monitor()
    for _, item in intake.poll(0.0):
        monitor.observe(item)
    if how == "replaced":
        path.rename(tmp_path / "gone")
        (tmp_path / "gone").unlink()
    path.write_bytes(gzip.compress(second) if how == "packed" else second)
    os.utime(path, ns=(2**62, 2**62))
    for _, item in [*intake.poll(1.0), *intake.finish()]:
        monitor.observe(item)
    intake.close()
    monitor.flush()
    assert monitor.rows()[-1].values[Metric("posttrain_tokens_compared")] == 1


def test_the_folder_says_which_attempt_wrote_a_file() -> None:
    assert attempts.of(Path("/l/exp_007/train_data_step3.jsonl")) == ("/l", 7)
    assert attempts.of(Path("/o/v2-20261130-120000/samples/a.jsonl")) == ("/o", 2)
    assert attempts.of(Path("/o/experiment_1/exp_x/v2-final/a.jsonl")) == ("", 0)


def test_nemo_rl_the_daemon_learns_the_step_from_the_name(tmp_path: Path) -> None:
    shutil.copy(DATA / "exp_001/train_data_step3.jsonl", tmp_path)
    intake = Intake(RunConfig(paths=[str(tmp_path)]))
    found = [item for _, item in intake.poll(0.0)]
    intake.close()
    assert [i.step.tolist() for i in found if isinstance(i, TokenBatch)] == [[3, 3]]


# --- prime-rl


def test_prime_rl_all_ranks_of_a_stable_step_and_not_the_half_line(tmp_path: Path) -> None:
    shutil.copytree(DATA / "token_exports", tmp_path / "token_exports")
    found, refused = batches(tmp_path / "token_exports")
    assert [b.sequences for b in found] == [2, 2]
    assert sorted({r for b in found for r in b.labels["rank"]}) == ["0", "2"]
    assert [why for path, why in refused if Path(path).name != "STABLE"] == []


def test_prime_rl_nulls_and_the_tokens_of_another_loss() -> None:
    batch = prime_rl.read_file(DATA / "token_exports/step_12/rank_0.jsonl")
    assert batch.offsets.tolist() == [0, 3, 6]
    assert batch.engine_null is not None
    assert batch.engine_null.tolist() == [False, True, False, False, False, False]
    assert batch.mask.tolist() == [True, True, True, True, False, True]
    assert batch.entropy is not None
    assert batch.entropy[0] == np.float32(0.4)


def test_prime_rl_a_step_without_its_mark_waits(tmp_path: Path) -> None:
    step = tmp_path / "step_12"
    shutil.copytree(DATA / "token_exports/step_12", step)
    (step / "STABLE").unlink()
    intake = Intake(RunConfig(paths=[str(step / "rank_*.jsonl")]))
    assert list(intake.poll(0.0)) == []
    assert "STABLE is missing" in intake.sources()[0].error
    (step / "STABLE").touch()
    os.utime(step / "STABLE", ns=(2**62, 2**62))
    assert len(list(intake.poll(1.0))) == 2
    assert list(intake.poll(2.0)) == []
    intake.close()


def test_prime_rl_a_mark_older_than_the_files_is_of_the_run_before(tmp_path: Path) -> None:
    step = tmp_path / "step_12"
    shutil.copytree(DATA / "token_exports/step_12", step)
    os.utime(step / "STABLE", ns=(10**9, 10**9))
    assert "written anew" in prime_rl.incomplete(step / "rank_0.jsonl", growing=True)
    assert prime_rl.incomplete(step / "rank_0.jsonl", growing=False) == ""


def test_prime_rl_traces_without_the_trainer_are_left_out() -> None:
    batch = prime_rl_traces.read(lines("traces.jsonl"))
    assert batch.offsets.tolist() == [0, 3]
    assert batch.mask.tolist() == [False, True, True]
    assert batch.step.tolist() == [4]


# --- engines and text


def test_a_generated_text_in_a_dump_forges_no_metric() -> None:
    for name in ("verl_rollouts.jsonl", "sglang_requests.log"):
        feeds, refused = open_feeds([DATA / name], RunConfig())
        assert refused == []
        assert not any(isinstance(item, (Row, Event)) for feed in feeds for item in feed)


def test_roll_boards_need_the_engine_side() -> None:
    batch = roll.read(lines("roll_board.jsonl"))
    assert batch.sequences == 1
    assert batch.current_logprobs is not None
    np.testing.assert_allclose(batch.current_logprobs, [-0.5, -0.3])


# --- torch files


def train_dump(**more: object) -> dict[str, object]:
    sample = {
        "data_parallel_rank": 1,
        "tokens": torch.tensor([1, 2, 3, 10, 11]),
        "response_lengths": 2,
        "loss_masks": torch.tensor([1, 0], dtype=torch.int32),
        "rollout_log_probs": torch.tensor([-0.5, -0.25]),
        "log_probs": torch.tensor([-0.5, -0.3], dtype=torch.bfloat16),
        "advantages": torch.tensor([0.7, 0.7]),
        "rewards": 0.7,
        "truncated": 0,
    }
    return {"format_version": 2, "rollout_id": 12, "rank": 0, "samples": [sample], **more}


def test_slime_train_dump(tmp_path: Path) -> None:
    path = tmp_path / "12.pt"
    torch.save(train_dump(), path)
    assert kinds.classify(path) == kinds.Kind(kinds.TOKEN_FILE, "slime")
    batch = slime.read_file(path)
    assert batch.step.tolist() == [12]
    assert batch.mask.tolist() == [True, False]
    assert batch.token_ids is not None and batch.prompt_length is not None
    assert (batch.token_ids.tolist(), batch.prompt_length.tolist()) == ([10, 11], [3])
    np.testing.assert_allclose(batch.trainer_logprobs, [-0.5, -0.3], atol=2e-3)
    assert batch.finish_reason == ["stop"]


def test_slime_older_layout_of_columns(tmp_path: Path) -> None:
    sample = train_dump()["samples"][0]  # type: ignore[index]
    path = tmp_path / "12.pt"
    torch.save({"rollout_id": 12, "rank": 0, "rollout_data": {k: [v] for k, v in sample.items()}}, path)
    assert slime.read_file(path).token_ids.tolist() == [10, 11]  # type: ignore[union-attr]


def test_slime_rollout_dump_has_one_side(tmp_path: Path) -> None:
    path = tmp_path / "12.pt"
    sample = {"tokens": [1, 2], "response_length": 1, "loss_mask": None, "rollout_log_probs": [-0.5]}
    torch.save({"rollout_id": 12, "samples": [sample]}, path)
    assert kinds.classify(path).dialect == "slime"
    assert batches(path) == ([], [])


class Malicious:
    """Makes a file when it is unpickled."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.witness),)


def test_slime_a_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "12.pt"
    torch.save(train_dump(trap=Malicious(tmp_path / "ran")), path)
    found, refused = batches(path)
    assert found == []
    assert "more than tensors" in refused[0][1]
    assert not (tmp_path / "ran").exists()


def test_slime_a_half_written_file_is_read_when_it_is_whole(tmp_path: Path) -> None:
    torch.save(train_dump(), tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    path = tmp_path / "12.pt"
    path.write_bytes(content[: len(content) // 2])
    intake = Intake(RunConfig(paths=[str(path)]))
    assert list(intake.poll(0.0)) == []
    path.write_bytes(content)
    assert len(list(intake.poll(1.0))) == 1
    assert list(intake.poll(2.0)) == []


# --- SkyRL


def skyrl_state() -> dict[str, object]:
    def saved(tensor: torch.Tensor) -> bytes:
        import io

        buffer = io.BytesIO()
        torch.save(tensor, buffer)
        return buffer.getvalue()

    columns = {
        "sequences": torch.tensor([[0, 1, 2, 10, 11], [1, 2, 3, 10, 0]]),
        "attention_mask": torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]]),
        "response_mask": torch.tensor([[0, 1, 1], [0, 1, 0]]),
        "loss_mask": torch.tensor([[0, 1, 1], [0, 1, 0]]),
        "rollout_logprobs": torch.tensor([[0.0, -0.5, -0.25], [0.0, -1.0, 0.0]]),
        "action_log_probs": torch.tensor([[-9.0, -0.5, -0.3], [-9.0, -1.1, -7.0]]),
    }
    return {"batch_dict": {k: saved(v) for k, v in columns.items()}, "batch_size": 2, "device": None, "metadata": {}}


def skyrl_pickle(path: Path, state: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes what SkyRL's own class would write: an object of skyrl_train.training_batch with this state."""
    import sys
    from types import ModuleType

    class TrainingInputBatch(dict):  # type: ignore[type-arg]
        def __reduce__(self) -> tuple[object, ...]:
            return TrainingInputBatch, (), state

    module = ModuleType("skyrl_train.training_batch")
    TrainingInputBatch.__module__, TrainingInputBatch.__qualname__ = module.__name__, "TrainingInputBatch"
    module.TrainingInputBatch = TrainingInputBatch  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "skyrl_train", ModuleType("skyrl_train"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    path.write_bytes(pickle.dumps(TrainingInputBatch()))
    monkeypatch.undo()


def test_skyrl_left_padding_and_the_right_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "global_step_7_training_input.pkl"
    skyrl_pickle(path, skyrl_state(), monkeypatch)
    assert kinds.classify(path) == kinds.Kind(kinds.TOKEN_FILE, "skyrl")
    batch = skyrl.read_file(path)
    assert batch.offsets.tolist() == [0, 2, 3]
    assert batch.token_ids is not None and batch.prompt_length is not None
    assert (batch.token_ids.tolist(), batch.prompt_length.tolist()) == ([10, 11, 10], [2, 3])
    np.testing.assert_allclose(batch.trainer_logprobs, [-0.5, -0.3, -1.1])
    assert batch.step.tolist() == [7, 7]


def test_skyrl_tensors_pickled_directly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "global_step_8_training_input.pkl"
    columns = {
        "rollout_logprobs": torch.tensor([[-0.5, -0.25]]),
        "action_log_probs": np.array([[-0.5, -0.3]], np.float32),
        "loss_mask": torch.ones(1, 2),
    }
    skyrl_pickle(path, {"batch_dict": columns}, monkeypatch)
    np.testing.assert_allclose(skyrl.read_file(path).trainer_logprobs, [-0.5, -0.3])


@pytest.mark.parametrize("inside", ["top", "metadata", "tensor"])
def test_skyrl_a_pickle_that_would_run_code_is_refused(
    inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, trap = tmp_path / "global_step_7_training_input.pkl", Malicious(tmp_path / "ran")
    state = skyrl_state()
    if inside == "top":
        path.write_bytes(pickle.dumps({"training_batch": "batch_dict", "trap": trap}))
    elif inside == "metadata":
        skyrl_pickle(path, {**state, "metadata": trap}, monkeypatch)
    else:
        skyrl_pickle(path, {"batch_dict": {"rollout_logprobs": pickle.dumps(trap)}}, monkeypatch)
    found, refused = batches(path)
    assert found == []
    assert "refused" in refused[0][1]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["eval", "getattr", "__import__"])
def test_skyrl_no_builtin_that_could_help_an_attacker(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(b"\x80\x04cbuiltins\n" + name.encode() + b"\n.# training_batch batch_dict")
    with pytest.raises(ValueError, match=name):
        skyrl.read_file(path)


def test_skyrl_a_pickle_cannot_change_the_functions_it_is_given(tmp_path: Path) -> None:
    from torch._utils import _rebuild_tensor_v2

    before = _rebuild_tensor_v2.__defaults__
    path = tmp_path / "x.pkl"
    # BUILD with a state of (None, {"__defaults__": None}) sets an attribute of whatever lies below it
    path.write_bytes(b"\x80\x04ctorch._utils\n_rebuild_tensor_v2\nN}\x8c\x0c__defaults__Ns\x86b.")
    with pytest.raises(ValueError):
        skyrl.read_file(path)
    assert _rebuild_tensor_v2.__defaults__ == before
    assert before is not None


# --- Parquet


def test_native_parquet(tmp_path: Path) -> None:
    path = tmp_path / "dump.parquet"
    columns = {"step": [1, 2], "engine_logprobs": [[-0.5, None], [-1.0]], "trainer_logprobs": [[-0.5, -0.2], [-1.1]]}
    pq.write_table(pa.table(columns), path)
    assert kinds.classify(path) == kinds.Kind(kinds.TOKEN_FILE, "parquet")
    batch = parquet.read_file(path)
    assert (batch.step.tolist(), batch.offsets.tolist()) == ([1, 2], [0, 2, 3])
    assert batch.engine_null is not None
    assert batch.engine_null.tolist() == [False, True, False]


def test_parquet_of_texts_or_half_written_is_not_accepted(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"step": [1], "prompt": ["p"], "completion": ["c"]}), path)
    assert not parquet.accepts(path)
    path.write_bytes(path.read_bytes()[:40])
    assert not parquet.accepts(path)
