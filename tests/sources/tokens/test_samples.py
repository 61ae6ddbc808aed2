"""Dumps with one side: what they say of rewards, lengths and groups, and what a log beside them keeps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain_watchdog.alerting.rules import RuleSet
from posttrain_watchdog.config import Config, RunConfig
from posttrain_watchdog.feed import open_feeds
from posttrain_watchdog.intake import Intake
from posttrain_watchdog.model import Event, Metric
from posttrain_watchdog.pipeline import Pipeline, Run
from posttrain_watchdog.replay import replay
from posttrain_watchdog.sources.sample_tally import SampleTally, statistics
from posttrain_watchdog.sources.samples import Sample, Samples, by_step, of_evaluation

TRAINER = "posttrain_trainer_"


def verl(step: int, scores: list[float], each: int = 2, output: str = "an answer of its own, {}") -> str:
    """A file as verl writes it: `each` samples a prompt."""
    rows = [
        {"input": f"prompt {i // each}", "output": output.format(i), "gts": "4", "score": score, "step": step}
        for i, score in enumerate(scores)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def values(path: Path, last: int | None = None) -> dict[str, float]:
    """What a replay of the dump alone knows at the end."""
    found = dict(replay([path], Config(), RuleSet(())).runs[0].metrics)
    assert last is None or found["posttrain_run_step"] == last
    return found


def test_verl_rewards_and_groups(tmp_path: Path) -> None:
    (tmp_path / "7.jsonl").write_text(verl(7, [1.0, 0.0, 1.0, 1.0]))
    found = values(tmp_path, last=7)
    assert found[TRAINER + "reward_mean"] == 0.75
    assert (found[TRAINER + "reward_min"], found[TRAINER + "reward_max"]) == (0.0, 1.0)
    assert found[TRAINER + "reward_std"] == pytest.approx(math.sqrt(0.5) / 2)
    assert found[TRAINER + "zero_std_fraction"] == 0.5
    assert found["posttrain_samples"] == 4
    assert found["posttrain_samples_without_reward"] == 0
    assert TRAINER + "completion_length_mean" not in found  # it holds texts, not tokens


def test_verl_a_validation_is_no_training(tmp_path: Path) -> None:
    for folder, score in (("rollouts", 0.25), ("validation_data", 1.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "7.jsonl").write_text(verl(7, [score, score + 0.5]))
    assert values(tmp_path)[TRAINER + "reward_mean"] == 0.5
    assert of_evaluation("val") and of_evaluation("eval-rollout")
    assert not of_evaluation("valuable") and not of_evaluation("rollouts")


def test_verl_samples_that_are_no_text_any_more(tmp_path: Path) -> None:
    (tmp_path / "7.jsonl").write_text(verl(7, [0.0] * 4, output=""))
    (feed,), _ = open_feeds([tmp_path], RunConfig())
    tally = SampleTally()
    for item in feed:
        assert isinstance(item, Samples)
        tally.add(item)
    tally.flush()
    tally.rows()
    (event,) = tally.events()
    assert (event.kind, event.step, event.labels) == ("samples_degenerate", 7, {"what": "empty"})
    assert event.text.startswith("4 of 4")


def test_areal_lengths_groups_and_the_evaluation_beside(tmp_path: Path) -> None:
    line = {"sample_idx": 0, "head_version": 11, "tail_version": 12, "prompt": "p", "completion": "c"}
    for task, (folder, length, reward) in enumerate(
        [("rollout", 30, 1.0), ("rollout", 50, 0.5), ("eval-rollout", 9, 9.0)]
    ):
        where = tmp_path / folder / "12"
        where.mkdir(parents=True, exist_ok=True)
        rows = [{"task_id": task, "seqlen": 118 + length, "prompt_len": 118, "reward": reward, **line}] * 2
        (where / f"{task}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = values(tmp_path / "rollout", last=12)
    assert found == values(tmp_path, last=12)
    assert (found[TRAINER + "completion_length_mean"], found[TRAINER + "completion_length_max"]) == (40, 50)
    assert (found[TRAINER + "zero_std_fraction"], found[TRAINER + "reward_mean"]) == (1.0, 0.75)
    assert TRAINER + "truncated_fraction" not in found  # nothing in it says why a completion ended


def test_slime_rollouts_lengths_and_what_the_limit_cut(tmp_path: Path) -> None:
    samples = [
        {"group_index": 0, "response_length": 8, "reward": 1.0, "status": "completed", "rollout_log_probs": [-0.5]},
        {"group_index": 0, "response_length": 32, "reward": 0.0, "status": "truncated", "rollout_log_probs": [-0.5]},
        {"group_index": 1, "response_length": 2, "reward": None, "status": "aborted", "rollout_log_probs": None},
    ]
    torch.save({"rollout_id": 3, "samples": samples}, tmp_path / "3.pt")
    torch.save({"rollout_id": 3, "samples": [{**samples[0], "reward": 99.0}]}, tmp_path / "eval_3.pt")
    found = values(tmp_path, last=3)
    assert (found[TRAINER + "truncated_fraction"], found[TRAINER + "terminated_length_mean"]) == (0.5, 8)
    assert (found[TRAINER + "reward_mean"], found["posttrain_samples_without_reward"]) == (0.5, 1)
    assert found["posttrain_samples"] == 3


def test_roll_board_without_the_engine_side_still_has_rewards(tmp_path: Path) -> None:
    base = {"step": 5, "logprobs": [-0.5, -0.2, -0.1], "log_probs2": [-0.5, -0.2, -0.1], "response": "fine"}
    for domain, reward in (("a", 1.0), ("b", 0.0)):  # a file a domain
        rows = [{**base, "new_response_mask": [1, 1, 0], "prompt": domain, "reward": reward}] * 2
        (tmp_path / f"data_{domain}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = values(tmp_path, last=5)
    assert (found[TRAINER + "completion_length_mean"], found[TRAINER + "reward_mean"]) == (2, 0.5)
    assert (found["posttrain_samples"], found[TRAINER + "zero_std_fraction"]) == (4, 1.0)
    assert "posttrain_tokens_compared" not in found


def followed(paths: list[Path]) -> tuple[Pipeline, Run, Callable[[float], None]]:
    settings = RunConfig(name="r", paths=[str(p) for p in paths])
    intake, pipeline = Intake(settings), Pipeline(Config(), RuleSet(()))
    run = pipeline.run(settings)

    def tick(now: float) -> None:
        for _, item in intake.poll(now):
            run.take(item, now)
        pipeline.tick(now)

    return pipeline, run, tick


def test_a_step_is_told_when_the_next_one_has_begun_and_counts_all_its_files(tmp_path: Path) -> None:
    _, run, tick = followed([tmp_path])
    (tmp_path / "a7.jsonl").write_text(verl(7, [1.0, 1.0]))
    tick(0.0)
    assert run.live.value(Metric("posttrain_samples")) is None
    (tmp_path / "b7.jsonl").write_text(verl(7, [0.0, 0.0]))
    tick(1.0)
    (tmp_path / "a8.jsonl").write_text(verl(8, [0.0]))
    tick(2.0)
    assert run.live.value(Metric("posttrain_samples")) == 4
    assert run.live.value(Metric(TRAINER + "reward_mean")) == 0.5
    assert run.step == 7


def test_a_resumed_run_that_writes_its_files_anew_counts_once(tmp_path: Path) -> None:
    _, run, tick = followed([tmp_path])
    for step in (7, 8, 9):
        (tmp_path / f"{step}.jsonl").write_text(verl(step, [1.0, 1.0]))
    tick(0.0)
    for step in (8, 9):
        (tmp_path / f"{step}.jsonl").write_text(verl(step, [0.0]))
        tick(float(step))
    assert run.live.value(Metric("posttrain_samples")) == 1
    assert run.live.value(Metric(TRAINER + "reward_mean")) == 0.0


LOG = "step:{} - critic/score/mean:{} - actor/grad_norm:0.3 - response_length/mean:40.0\n"


def test_a_log_keeps_its_own_word_and_its_own_steps(tmp_path: Path) -> None:
    log, dump = tmp_path / "train.log", tmp_path / "rollouts"
    dump.mkdir()
    _, run, tick = followed([dump, log])  # the dump is found first
    _, alone, tick_alone = followed([log])
    for step in range(1, 30):
        (dump / f"{step}.jsonl").write_text(verl(step, [1.0, 0.0, 0.0, 0.0]))
        if step > 1:  # the log is a step behind, as while a step is trained
            with log.open("a") as file:
                file.write(LOG.format(step - 1, 0.125))
        tick(60.0 * step)
        tick_alone(60.0 * step)
    both, only = run.live.last(), alone.live.last()
    assert {name: both[name] for name in only} == only
    assert set(both) - set(only) == {
        "posttrain_samples",
        "posttrain_samples_without_reward",
        *(TRAINER + short for short in ("reward_std", "reward_min", "reward_max", "zero_std_fraction")),
    }
    assert both[TRAINER + "zero_std_fraction"] == 0.5
    assert run._incidents.history.step == alone._incidents.history.step == 28
    assert len(run._incidents.history.breaks) == 0


def test_a_dump_alone_names_a_run_that_learns_nothing(tmp_path: Path) -> None:
    for step in range(1, 41):
        spread = [1.0, 0.0] * 8 if step < 15 else [1.0] * 16
        (tmp_path / f"{step}.jsonl").write_text(verl(step, spread, each=4))
    found = replay([tmp_path], Config(), RuleSet(())).runs[0]
    assert found.steps == (1, 40)
    assert [d.cause for d in found.diagnoses if d.confidence >= 0.5] == ["no_learning_signal"]


def test_groups_of_one_have_no_spread_of_their_own() -> None:
    (part,) = by_step([Sample(1, r, prompt=i) for i, r in enumerate((0.0, 1.0))])
    found = statistics([part])
    assert Metric(TRAINER + "zero_std_fraction") not in found
    assert found[Metric(TRAINER + "reward_std")] == pytest.approx(math.sqrt(0.5))


def test_memory_is_bounded_and_a_late_part_is_left_out() -> None:
    tally = SampleTally()
    for step in range(500):
        tally.add(next(by_step([Sample(step, 1.0)])))
        assert len(tally._open) <= 64
    tally.add(next(by_step([Sample(3, 5.0)])))
    rows = tally.rows()
    assert [row.step for row in rows] == list(range(499))
    assert {row.values[Metric("posttrain_samples")] for row in rows} == {1.0}


HOSTILE: list[Any] = [None, "x", "NaN", "1e999", [1], {"a": [1]}, True, 10**400, -(2**70), 1e308, [], math.nan]


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize("field", ["score", "step", "input", "output"])
def test_a_hostile_value_costs_its_record_at_most(field: str, value: Any, tmp_path: Path) -> None:
    good = verl(7, [1.0, 0.5])
    bad = json.dumps({"input": "p", "output": "o", "gts": "", "score": 1.0, "step": 7, field: value})
    path = tmp_path / "7.jsonl"
    path.write_text(good + bad + "\n" + "{broken\n[1]\n" + good)
    intake = Intake(RunConfig(paths=[str(path)]))
    parts = [item for _, item in intake.poll(0.0) if isinstance(item, Samples)]
    (source,) = intake.sources()
    intake.close()
    assert [part.step for part in parts] == [7] * len(parts)
    count = sum(len(part.reward) for part in parts)
    assert 4 <= count <= 5
    # what is no record of the form is passed over, what is no step or no JSON is counted
    assert source.parse_errors == 2 + (field == "step")


def test_events_of_samples_reach_the_run(tmp_path: Path) -> None:
    _, run, tick = followed([tmp_path])
    heard: list[object] = []
    run.observers.append(heard.append)
    (tmp_path / "7.jsonl").write_text(verl(7, [0.0] * 4, output="no " * 200))
    (tmp_path / "8.jsonl").write_text(verl(8, [0.0] * 4))
    tick(0.0)
    assert [item.labels for item in heard if isinstance(item, Event)] == [{"what": "repeats"}]
