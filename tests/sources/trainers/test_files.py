"""Whole files of trainers and trackers: event files, offline runs, written completions, trainer_state.json, exports."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sources.trainers.test_tracked_files import VERSION, history, metrics, run_file, scalar

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources import completion_tables, kinds, trainer_state
from posttrain_watchdog.sources.binary import Growing
from posttrain_watchdog.sources.detection import Follower
from posttrain_watchdog.sources.trainer_tables import trainer_of
from posttrain_watchdog.sources.trainers.completions import degenerate
from posttrain_watchdog.vocabulary.trainer import PREFIX


def steps(items: list[Row | Event]) -> list[int | None]:
    return [item.step for item in items if isinstance(item, Row)]


def test_an_event_file_is_known_by_its_content_and_followed(tmp_path: Path) -> None:
    path = tmp_path / "anything"
    path.write_bytes(VERSION + scalar("train/loss", 0.5, 1))
    assert kinds.classify(path) == kinds.Kind(kinds.EVENTS)
    growing = Growing(path, kinds.EVENTS)
    assert steps(list(growing.poll())) == [1]
    half = scalar("train/loss", 0.5, 2)
    with path.open("ab") as file:
        file.write(half[:20])
    assert steps(list(growing.poll())) == []
    with path.open("ab") as file:
        file.write(half[20:])
    assert steps(list(growing.poll())) == [2]
    path.write_bytes(VERSION)
    assert steps(list(growing.poll())) == []
    with path.open("ab") as file:
        file.write(scalar("train/loss", 0.5, 1))
    assert steps(list(growing.poll())) == [1], "a file that became shorter is a new one"


def test_an_offline_run_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "run-abc.wandb"
    path.write_bytes(run_file(history(metrics(1), 1)))
    assert kinds.classify(path) == kinds.Kind(kinds.WANDB)
    assert steps(list(Growing(path, kinds.WANDB).poll())) == [1]


@pytest.mark.parametrize("messages", [False, True])
def test_completions_of_trl_are_judged_in_both_forms(tmp_path: Path, messages: bool) -> None:
    def form(text: str) -> object:
        return [{"role": "assistant", "content": text}] if messages else text

    good = "The bakery sold twelve loaves in the morning and nine in the afternoon, so it sold twenty-one in all."
    path = tmp_path / "completions_00007.parquet"
    for texts, expected in ([good, good + " Done."], []), (["!" * 300, "ha " * 100], [("samples_degenerate", 7)]):
        columns = {"step": [7, 7], "prompt": [form("p"), form("q")], "completion": [form(t) for t in texts]}
        pq.write_table(pa.table({**columns, "reward": [0.0, 0.0], "advantage": [0.0, 0.0]}), path)
        assert kinds.classify(path) == kinds.Kind(kinds.COMPLETIONS)
        assert [(e.kind, e.step) for e in completion_tables.read_file(path)] == expected


def test_half_a_parquet_file_is_refused_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "completions_00007.parquet"
    path.write_bytes(b"PAR1" + b"\0" * 100)
    assert not completion_tables.accepts(path)
    with pytest.raises(kinds.Refused):
        kinds.classify(path)


def test_short_answers_and_code_are_text() -> None:
    assert degenerate("42") == ""
    assert degenerate("def f(x):\n    return x + 1\n" * 4 + "print(f(3))") == ""
    assert degenerate(" \n") == "empty"
    assert degenerate("no " * 200) == "repeats"


def test_recorded_completions_are_fine(recordings: Path) -> None:
    for path in sorted(recordings.glob("healthy*/completions/*.parquet")):
        assert completion_tables.accepts(path)
        assert completion_tables.read_file(path) == []


def test_a_state_that_is_written_anew_gives_only_its_new_steps(recordings: Path) -> None:
    content = (recordings / "nan-inf" / "trainer_state.json").read_text(encoding="utf-8")
    everything = list(trainer_state.read(content))
    assert steps(everything) == list(range(1, 61))
    assert steps(list(trainer_state.read(content, 40))) == list(range(41, 61))
    with pytest.raises(ValueError, match="trainer_state"):
        list(trainer_state.read(content[: len(content) // 2]))


@pytest.mark.parametrize(
    ("keys", "trainer"),
    [
        (["train/loss", "train/grad_norm", "train/reward", "train/frac_reward_zero_std", "train/num_tokens"], "trl"),
        (["actor/pg_loss", "actor/ppo_kl", "actor/grad_norm", "critic/score/mean"], "verl"),
        (["train/pg_loss", "train/ois", "train/tis", "train/grad_norm"], "slime"),
        (["train/gen_kl_error", "train/token_mult_prob_error", "train/loss"], "nemo_rl"),
        (["policy/final_loss", "policy/policy_entropy", "timing/step"], "skyrl"),
        (["train/vllm_kl", "train/ppo_kl", "train/policy_loss", "train/actor_lr"], "openrlhf"),
        (["actor/training/actor/ratio", "actor/training/actor/lr", "actor/training/actor/grad_norm"], "rlinf"),
        (["mismatch_kl/all/mean", "optim/lr", "optim/grad_norm", "loss/mean"], "prime_rl"),
        (["objective/math_reward", "objective/code_reward", "something"], ""),
    ],
)
def test_the_keys_of_an_export_tell_its_trainer(keys: list[str], trainer: str) -> None:
    assert trainer_of(keys) == trainer


def test_an_export_keeps_the_trainers_signs_and_names() -> None:
    follower = Follower()
    record = {
        "_step": 3,
        "_timestamp": 1.7e9,
        "ppo_actor/update/approx_kl/avg": 0.01,
        "ppo_actor/update/grad_norm": 0.2,
        "ppo_actor/update/behave_imp_weight/max": 5.0,
    }
    (row,) = [item for item in follower.feed(json.dumps(record)) if isinstance(item, Row)]
    assert row.time == 1.7e9
    found = {metric.name.removeprefix(PREFIX): value for metric, value in row.values.items()}
    assert found == {"ppo_kl": -0.01, "grad_norm": 0.2, "is_weight_max": 5.0}
