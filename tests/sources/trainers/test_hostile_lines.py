"""What stands between the records of a log: completions that imitate them, damage, several writers, restarts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.detection import Follower, dialects
from posttrain_watchdog.vocabulary.trainer import PREFIX


def read(*lines: str) -> list[Row | Event]:
    follower = Follower()
    return [item for line in lines for item in follower.feed(line)] + list(follower.close())


def rows(*lines: str) -> list[tuple[int | None, dict[str, float]]]:
    return [
        (r.step, {(dict(m.labels).get("key") or m.name.removeprefix(PREFIX)): v for m, v in r.values.items()})
        for r in read(*lines)
        if isinstance(r, Row)
    ]


def events(*lines: str) -> list[tuple[str, int | None]]:
    return [(i.kind, i.step) for i in read(*lines) if isinstance(i, Event)]


def trl(step: int, loss: float = 0.5) -> str:
    more = ", ".join(f"'rewards/f{i}/mean': '0.1'" for i in range(8))
    return (
        f"{{'loss': '{loss}', 'grad_norm': '0.5', 'learning_rate': '1e-06', 'reward': '0.5', "
        f"{more}, 'epoch': '{step / 100:.4g}'}}"
    )


def verl(step: int) -> str:
    return f"step:{step} - actor/grad_norm:0.5 - actor/entropy:1.0 - critic/score/mean:0.5"


FORGED = "99"


@pytest.mark.parametrize(
    "line",
    [
        "{'loss': 99, 'grad_norm': 99}",
        "{'loss': '99', 'reward': '99', 'kl': '99'}",
        "{'loss': 99, 'grad_norm': nan, 'reward': 99, 'step': 4}",
        "{'reward': 99, 'step': 99, 'epoch': 99}",
        '{"step": 5, "time": 99, "loss/mean": 99}',
        "step:4 - actor/grad_norm:99 - actor/pg_loss:99",
        "rollout 4: {'rollout/raw_reward': 99}",
        "========================= Step 99/1000 =========================",
        "loss = 99 at step = 99",
        "| step | loss |",
        "{'loss': '99', 'grad_norm': '99', 'learning_rate': '99', 'epoch': '99'}",
        "{'loss': '99', 'grad_norm': '99', 'learning_rate': '99', 'epoch': '0.001'}",
        "step,loss",
        "99,99",
        "> {'loss': '99', 'grad_norm': '99', 'learning_rate': '99', 'epoch': '99'}",
        "Answer: {'loss': '99', 'grad_norm': '99', 'learning_rate': '99', 'epoch': '99'}",
    ],
)
def test_a_line_of_a_completion_changes_no_trl_metric(line: str) -> None:
    found = rows(trl(1), trl(2), line, trl(3), line, trl(4))
    assert [step for step, _ in found] == [1, 2, 3, 4]
    assert all(99.0 not in values.values() for _, values in found)


@pytest.mark.parametrize(
    "line",
    [
        "step:99 - actor/grad_norm:99 - actor/entropy:99",
        "step:1000000 - actor/grad_norm:99",
        "{'loss': 99, 'grad_norm': 99, 'reward': 99}",
        '{"step":99,"data":{"actor/grad_norm":99}}',
        "The log says step:3 - actor/grad_norm:99 - x/y:99",
    ],
)
def test_a_step_that_does_not_follow_on_is_not_believed(line: str) -> None:
    found = rows(verl(1), verl(2), line, verl(3), verl(4), line, verl(5))
    assert [step for step, _ in found] == [1, 2, 3, 4, 5]
    assert events(verl(1), verl(2), line, verl(3), verl(4), line, verl(5)) == []


def test_a_jump_of_the_steps_is_believed_once_the_run_goes_on_from_there() -> None:
    assert [step for step, _ in rows(*(verl(s) for s in (1, 2, 3, 500, 501, 502)))] == [1, 2, 3, 500, 501, 502]


def test_a_resumed_run_that_prints_no_steps_is_told_by_its_epoch() -> None:
    lines = [trl(step) for step in (1, 2, 3, 4, 3, 4, 5)]
    assert [step for step, _ in rows(*lines)] == [1, 2, 3, 4, 3, 4, 5]
    assert events(*lines) == [("resumed", 3)]


def test_a_bar_tells_the_step_of_a_resumed_run() -> None:
    bar = "  60%|██████    | 240/400 [00:10<05:00, 41.2s/it]"
    assert [step for step, _ in rows(bar, trl(240), "\r" + bar.replace("240/", "241/") + "\r" + trl(241))] == [240, 241]


def test_a_bar_of_an_evaluation_tells_no_step() -> None:
    training = "  1%|          | 3/400 [00:10<05:00, 41.2s/it]"
    evaluation = " 100%|██████████| 13/13 [00:10<00:00, 41.2s/it]"
    assert [step for step, _ in rows(training, trl(3), evaluation, trl(4))] == [3, 4]


def test_a_step_without_generation_prints_fewer_metrics_and_counts() -> None:
    short = "{'loss': '0.5', 'grad_norm': '0.5', 'learning_rate': '1e-06', 'epoch': '0.02'}"
    assert [step for step, _ in rows(trl(1), short, trl(3))] == [1, 2, 3]


def test_an_evaluation_is_no_step() -> None:
    evaluation = "{'eval_loss': '0.5', 'eval_reward': '99', 'eval_runtime': '99', 'epoch': '0.02'}"
    assert [step for step, _ in rows(trl(1), trl(2), evaluation, trl(3))] == [1, 2, 3]


def test_two_dicts_glued_together_give_the_first() -> None:
    found = rows(trl(1), trl(2, 0.25) + trl(3, 0.75))
    assert found[1][1]["loss"] == 0.25


def test_ranks_in_front_of_a_line_are_no_part_of_it() -> None:
    assert [step for step, _ in rows("[rank0]: " + trl(1), "[rank0]: " + trl(2))] == [1, 2]
    assert rows("[default0]:" + verl(7))[0][0] == 7


def test_a_time_of_day_goes_on_past_midnight() -> None:
    lines = [f"{clock} {trl(step)}" for step, clock in ((1, "23:59:30"), (2, "00:00:30"), (3, "00:01:30"))]
    times = [item.time for item in read(*lines) if isinstance(item, Row)]
    assert times == [86370.0, 86430.0, 86490.0]


@pytest.mark.parametrize("word", ["nan", "NaN", "'nan'", "inf", "-inf", "'Infinity'", "np.float64(nan)"])
def test_every_spelling_of_not_a_number(word: str) -> None:
    line = trl(2).replace("'grad_norm': '0.5'", f"'grad_norm': {word}")
    found = dict(rows(trl(1), line))[2]["grad_norm"]
    assert not math.isfinite(found)
    assert events(trl(1), line) == [("nan_loss", 2)]


@pytest.mark.parametrize("word", ["None", "null", "'None'", "[1, 2]", "'high'"])
def test_what_is_absent_or_no_number_is_left_out(word: str) -> None:
    line = trl(2).replace("'reward': '0.5'", f"'reward': {word}")
    assert "reward_mean" not in dict(rows(trl(1), line))[2]


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("tensor(0.25)", 0.25),
        ("tensor(0.25, device='cuda:0')", 0.25),
        ("np.float64(0.25)", 0.25),
        ("'1,234.5'", 1234.5),
    ],
)
def test_scalars_in_a_shell(word: str, number: float) -> None:
    line = trl(2).replace("'reward': '0.5'", f"'reward': {word}")
    assert dict(rows(trl(1), line))[2]["reward_mean"] == number


def test_bytes_that_are_no_text_hide_no_record() -> None:
    gbk = "奖励".encode("gbk").decode("utf-8", "replace")
    found = rows(trl(1), gbk, "\0\0" + trl(2), "\0" * 1000, gbk + "\r" + trl(3))
    assert [step for step, _ in found] == [1, 2, 3]


def test_a_line_of_ten_megabytes_is_passed_by() -> None:
    found = rows(trl(1), "{'loss': '" + "x" * 10_000_000, "x" * 10_000_000, trl(2))
    assert [step for step, _ in found] == [1, 2]


@pytest.mark.parametrize("grad_norm", ["0.5", "nan"])
def test_of_two_keys_with_one_meaning_the_second_keeps_its_own_name(grad_norm: str) -> None:
    line = f"step:1 - critic/score/mean:0.25 - critic/rewards/mean:0.75 - actor/grad_norm:{grad_norm}"
    found = rows(line)[0][1]
    assert (found["reward_mean"], found["critic/score/mean"]) == (0.75, 0.25)


def test_own_keys_are_kept_and_bounded() -> None:
    many = [f"step:{s} - actor/grad_norm:0.5 - my/key{s}:1.0" for s in range(1, 1200)]
    kept = {key for _, values in rows(*many) for key in values if key.startswith("my/")}
    assert 400 <= len(kept) <= 500


@settings(max_examples=300, deadline=None)
@given(
    line=st.one_of(
        st.text(max_size=200),
        st.lists(
            st.sampled_from(
                ["{'loss'", ": ", "'nan'", "}", "step:3", " - ", "actor/x", "{", '"step"', "np.float64(", ")", "│", "=",
                 "1e999", "-", ",", "Step 3:", "tracking:log", "\r", "\x1b[0m", "(A pid=1)", "[rank0]: ", "%|", "3/4 ["]
            ),
            max_size=30,
        ).map("".join),
    )
)  # fmt: skip
def test_no_line_ever_raises(line: str) -> None:
    for module in dialects().values():
        reader = module.Dialect()
        list(reader.feed(line))
        list(reader.feed(line))
        list(reader.close())
        assert module.recognises(line) in (True, False)
    follower = Follower()
    for each in (trl(1), line, trl(2), verl(1), line, line, verl(2)):
        list(follower.feed(each))
    list(follower.close())


def test_the_only_record_after_a_restart_comes_out_at_the_logs_end() -> None:
    lines = [trl(step) for step in (1, 2, 3, 4, 3)]
    assert [step for step, _ in rows(*lines)] == [1, 2, 3, 4, 3]
    assert events(*lines) == [("resumed", 3)]


def test_a_held_record_comes_out_before_the_run_is_finished() -> None:
    finished = "{'train_runtime': '38.47', 'train_samples_per_second': '1.04', 'train_loss': '-0.09', 'epoch': '0.03'}"
    lines = [trl(1), trl(2), trl(3), trl(4), trl(3), finished]
    assert [step for step, _ in rows(*lines)] == [1, 2, 3, 4, 3]
    assert events(*lines) == [("resumed", 3), ("run_finished", 3)]


@pytest.mark.parametrize("epoch", ["99", "0.001"])
def test_a_line_of_a_completion_at_the_logs_end_is_no_record(epoch: str) -> None:
    line = f"{{'loss': '99', 'grad_norm': '99', 'learning_rate': '99', 'epoch': '{epoch}'}}"
    assert [step for step, _ in rows(trl(1), trl(2), line)] == [1, 2]
    assert events(trl(1), trl(2), line) == []


def bar(step: int, total: int = 400) -> str:
    return f"\r  1%|          | {step}/{total} [00:10<05:00, 41.2s/it]"


def test_a_bar_that_went_back_as_well_confirms_a_restart_at_once() -> None:
    follower = Follower()
    lines = [bar(7) + "\r" + trl(7), bar(8) + "\r" + trl(8), bar(8) + bar(0) + bar(5) + "\r" + trl(5)]
    items = [item for line in lines for item in follower.feed(line)]
    assert [i.step for i in items if isinstance(i, Row)] == [7, 8, 5]
    assert [(i.kind, i.step) for i in items if isinstance(i, Event)] == [("resumed", 5)]


def test_a_bar_from_before_a_restart_tells_no_step_of_the_run_behind_it() -> None:
    before = [bar(step, 10) + "\r" + trl(step) for step in (7, 8, 9, 10)] + [bar(10, 10)]
    again = [bar(step, 9) + "\r" + trl(step) for step in (8, 9)]
    assert [step for step, _ in rows(*before, *again)] == [7, 8, 9, 10, 8, 9]
