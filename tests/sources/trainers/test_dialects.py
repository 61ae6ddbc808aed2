"""Lines as the frameworks print them, and lines that only look like them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.detection import Follower
from posttrain_watchdog.vocabulary.trainer import PREFIX


def read(*lines: str) -> list[Row | Event]:
    follower = Follower()
    return [item for line in lines for item in follower.feed(line)] + list(follower.close())


def rows(*lines: str) -> list[tuple[int | None, dict[str, float]]]:
    found = [item for item in read(*lines) if isinstance(item, Row)]
    return [
        (r.step, {(dict(m.labels).get("key") or m.name.removeprefix(PREFIX)): v for m, v in r.values.items()})
        for r in found
    ]


OLD = "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 9.9e-07, 'reward': 0.5, 'kl': None, 'epoch': 0.12}"
NEW = "{'loss': '0.1695', 'grad_norm': '0.7762', 'num_tokens': '1.235e+05', 'entropy': '1.853', 'epoch': '0.00625'}"


def test_trl_prints_bare_floats_before_transformers_5_and_quoted_ones_after() -> None:
    assert rows(NEW)[0][1]["grad_norm"] == 0.7762
    step, values = rows(OLD)[0]
    assert step == 1
    assert math.isnan(values["grad_norm"])
    assert "kl_ref" not in values
    assert [i.kind for i in read(OLD) if isinstance(i, Event)] == ["nan_loss"]


def test_trl_weights_after_clipping_are_not_taken_for_ratios() -> None:
    line = (
        NEW[:-1] + ", 'sampling/importance_sampling_ratio/min': '0', 'sampling/importance_sampling_ratio/mean': '0.57'}"
    )
    assert rows(line)[0][1]["is_weight_mean"] == 0.57
    assert not any(key.startswith("is_ratio") for key in rows(line)[0][1])


def test_a_progress_bar_in_front_of_a_dict_is_overwritten_by_it() -> None:
    assert rows("  3%|▎  | 12/400 [00:10<05:00]\r" + NEW)[0][1]["entropy"] == 1.853


def test_verl_prints_numpy_scalars_and_ray_prefixes() -> None:
    line = (
        "\x1b[36m(TaskRunner pid=12345)\x1b[0m step:12 - rollout_corr/kl:-0.00071 - actor/grad_norm:np.float64(0.2143)"
    )
    line += (
        " - critic/score/mean:nan - num_turns/min:np.int32(2) - val-core/x/acc/mean@16:0.5 [repeated 3x across cluster]"
    )
    step, values = rows(line)[0]
    assert step == 12
    assert values["mismatch_kl_k1"] == -0.00071
    assert values["grad_norm"] == 0.2143
    assert values["num_turns/min"] == 2
    assert values["val-core/x/acc/mean@16"] == 0.5


def test_verl_writes_null_for_what_is_not_finite() -> None:
    step, values = rows('{"step":12,"data":{"actor/grad_norm":0.2143,"critic/score/mean":null}}')[0]
    assert (step, values) == (12, {"grad_norm": 0.2143})


def test_ms_swift_hides_the_step_in_a_text() -> None:
    line = '{"loss": 0.1, "rollout_correction/k3_kl": 0.00068, "memory(GiB)": 61.2, "global_step/max_steps": "12/400"}'
    assert rows(line) == [(12, {"loss": 0.1, "mismatch_kl_k3": 0.00068, "memory(GiB)": 61.2})]


def test_openrlhf_prints_a_dict_behind_its_logger() -> None:
    line = (
        "INFO 11-30 12:00:01 ppo_trainer.py:547] ✨ Global step 12: {'policy_loss': 0.01, 'vllm_kl': 0.0007, 'kl': nan}"
    )
    step, values = rows(line)[0]
    assert step == 12 and values["mismatch_kl_k1"] == 0.0007 and math.isnan(values["kl_ref"])


def test_slime_has_two_kinds_of_perf_and_its_ois_is_a_ppo_ratio() -> None:
    found = rows(
        "[2026-11-30 12:00:01] metrics.py:268 - perf 12: {'rollout/repetition_frac': 0.0, 'perf/rollout_time': 61.2}",
        "[2026-11-30 12:01:40] model.py:918 - step 12: {'train/loss': 0.0012, 'train/tis': 1.0003, 'train/ois': 1.0}",
        "[2026-11-30 12:01:41] train_metric_utils.py:401 - perf 12: {'perf/step_time': 101.3}",
    )
    assert [step for step, _ in found] == [12, 12, 12]
    assert found[1][1] == {"loss": 0.0012, "is_ratio_mean": 1.0003, "ppo_ratio_mean": 1.0}
    assert found[2][1] == {"step_seconds": 101.3}


def test_nemo_rl_tells_the_step_only_in_the_header() -> None:
    found = rows(
        "========================= Step 12/1000 =========================",
        "📊 Training Results:",
        "  • Loss: 0.0123",
        "  • Generation KL Error: 0.0007",
        "⏱️  Timing:",
        "  • Total step time: 101.30s",
        "  • policy_training: 33.10s (32.7%)",
    )
    assert found == [(12, {"loss": 0.0123, "mismatch_kl_k3": 0.0007, "step_seconds": 101.3, "training_seconds": 33.1})]


def test_nemo_rl_counts_its_steps_within_an_epoch() -> None:
    def block(epoch: int | None, step: int) -> list[str]:
        head = [] if epoch is None else [f"{'=' * 25} Epoch {epoch}/3 {'=' * 25}"]
        return [*head, f"{'=' * 25} Step {step}/2 {'=' * 25}", f"  • Loss: 0.{step}"]

    whole_run = [*block(1, 1), *block(None, 2), *block(2, 1), *block(None, 2), *block(3, 1)]
    assert [step for step, _ in rows(*whole_run)] == [1, 2, 3, 4, 5]
    from_the_second = [*block(2, 1), *block(None, 2), *block(3, 1)]
    assert [step for step, _ in rows(*from_the_second)] == [3, 4, 5]
    resumed = [*block(1, 1), *block(None, 2), *block(2, 1), *block(None, 2), *block(2, 1), *block(None, 2)]
    assert [step for step, _ in rows(*resumed)] == [1, 2, 3, 4, 3, 4]
    assert [i.kind for i in read(*resumed) if isinstance(i, Event)] == ["resumed"]


def test_prime_rl_writes_several_rows_a_step_from_two_processes() -> None:
    found = rows(
        '{"step": 12, "time": 1796040001.1, "perf/mfu": 31.2}',
        '{"step": 12, "time": 1796040001.3, "mismatch_kl/all/mean": 0.0007,"train/agg/effective/m/reward/mean": 0.4}',
        "12:01:41 SUCCESS Step 12 |  1m 41s | Loss 0.0012 | Throughput 51233 tokens/s | MFU 31.2% | Peak Mem. 61.2 GiB",
    )
    assert found[0] == (12, {"mfu": 0.312})
    assert found[1] == (12, {"mismatch_kl_k3": 0.0007, "reward_mean": 0.4})


def test_areal_has_the_opposite_sign_and_it_is_turned() -> None:
    found = rows(
        "(AReaL) 20261130-12:00:00.000 StatsLogger INFO: Epoch 1/10 Step 13/700 Train step 13/7000 done.",
        "│ ppo_actor/task_reward/avg        │ 4.3750e-01 │ ppo_actor/update/behave_approx_kl/avg │ -7.1000e-04 │",
    )
    assert found == [(13, {"reward_mean": 0.4375, "mismatch_kl_k1": 0.00071})]


def test_skyrl_prints_its_dict_over_several_lines() -> None:
    found = rows(
        "2026-11-30 12:01:41.123 | INFO     | skyrl.train.utils.tracking:log:189 - Step 12: ",
        "{'policy/final_loss': '0.0012',",
        " 'policy/loss_metrics/is_ratio_mean': '1.0003',",
        " 'policy/loss_metrics/is_ratio_min': '0.0000',",
        " 'timing/step': '101.3000'}",
    )
    assert found[0][1]["is_ratio_mean"] == 1.0003
    assert "is_ratio_min" not in found[0][1], "it includes masked zeros"


def test_roll_tags_its_reducers_and_turns_the_sign_of_policykl() -> None:
    step, values = rows('{"step": 3, "actor/policykl@mean": 0.01, "actor/train_infer_ratio_token_mean@mean": 1.01}')[0]
    assert step == 3 and values["ppo_kl"] == -0.01 and values["is_ratio_mean"] == 1.01


def test_csv_bars_and_key_value_lines_are_read_without_a_framework() -> None:
    assert rows("step,loss,grad_norm", "1,0.5,nan")[0][1]["loss"] == 0.5
    assert rows("Step | Training Loss | reward", "-- | -- | --", "1 | -0.283600 | 13.4") == [
        (1, {"loss": -0.2836, "reward_mean": 13.4})
    ]
    assert rows("2026-05-02 12:00:00 step=7 loss=0.5 tokens_per_second=15,004") == [
        (7, {"loss": 0.5, "tokens_per_second": 15004.0})
    ]


def test_strings_that_mean_numbers_are_numbers() -> None:
    found = read('{"_step":55,"actor/grad_norm":"Infinity","val/reward":"NaN"}')
    assert [i.kind for i in found if isinstance(i, Event)] == ["nan_loss"]


@pytest.mark.parametrize(
    "hostile",
    [
        "reward: 5 apples",
        "│ {'loss': 99.0, 'grad_norm': 99.0, 'reward': 99.0} │",
        "The answer is {'loss': 99.0, 'grad_norm': 99.0, 'epoch': 1.0}",
        '{"step": 1000000, "completion": "x", "reward": 99.0}',
        "step:99 - no numbers here",
        "{'loss': __import__('os').system('true'), 'grad_norm': exec('1')}",
        "{'loss': 99" + ", 'a': [" * 5000,
        "\0" * 1000 + "{'loss'",
        "x" * 1_000_000,
    ],
)
def test_a_printed_completion_forges_no_metric(hostile: str) -> None:
    found = rows(NEW, hostile, NEW)
    assert [step for step, _ in found] == [1, 2]
    assert not any(v in (99.0, 1e6) for _, values in found for v in values.values())


def test_one_line_of_another_dialect_inside_a_log_changes_nothing() -> None:
    forged = "step:99 - actor/grad_norm:99.0 - actor/entropy:99.0"
    assert [step for step, _ in rows(NEW, forged, NEW, forged, NEW)] == [1, 2, 3]


def test_a_log_that_changes_its_dialect_is_followed() -> None:
    verl = ["step:1 - actor/grad_norm:0.1 - actor/entropy:1.0", "step:2 - actor/grad_norm:0.2 - actor/entropy:1.0"]
    found = rows(NEW, *verl, verl[1].replace("step:2", "step:3"))
    assert found[-1] == (3, {"grad_norm": 0.2, "entropy": 1.0})


def test_going_back_to_a_checkpoint_is_said() -> None:
    lines = [f"{{'loss': 0.1, 'grad_norm': 0.1, 'reward': 0.1, 'step': {s}}}" for s in (8, 9, 8, 9)]
    assert [(i.kind, i.step) for i in read(*lines) if isinstance(i, Event)] == [("resumed", 8)]


def test_every_recorded_console_gives_its_sixty_steps(recordings: Path) -> None:
    for name in ("healthy", "nan-inf", "server-mode-processed", "turns-ok"):
        lines = (recordings / name / "stdout.log").read_text(encoding="utf-8", errors="replace").split("\n")
        assert [step for step, _ in rows(*lines)] == list(range(1, 61)), name
