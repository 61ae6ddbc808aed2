"""One run on its way through the pipeline."""

from __future__ import annotations

from test_model import batch_of

from posttrain_watchdog.alerting.rules import RuleSet
from posttrain_watchdog.config import Config, RunConfig
from posttrain_watchdog.consistency.device import choose
from posttrain_watchdog.model import Diagnosis, Event, Metric, Row
from posttrain_watchdog.pipeline import Pipeline, Run, ranked

STEP = Metric("posttrain_run_step")


def run(**settings: object) -> Run:
    return Run(RunConfig(name="r"), Config.model_validate(settings))


def test_more_tokens_than_the_budget_are_thinned_evenly_and_counted() -> None:
    limited = run(tokens={"tokens_per_minute": 600})
    for step in range(3):
        limited.take(batch_of([10] * 50, [step] * 50), 100.0)
    limited.advance(100.0, final=True)
    skipped = limited.live.value(Metric("posttrain_tokens_skipped_total", {"reason": "budget"}))
    assert skipped is not None and 800 <= skipped <= 980
    limited.take(batch_of([10] * 50, [3] * 50), 160.0)
    limited.advance(160.0, final=True)
    assert limited.live.value(Metric("posttrain_tokens_skipped_total", {"reason": "budget"})) == skipped


def test_a_step_that_comes_back_after_a_restart_is_taken_up() -> None:
    resumed = run()
    loss = Metric("posttrain_trainer_loss")
    for at, step in enumerate([8, 9, 8, 9, 10]):
        resumed.take(Row({loss: 1.0}, step), 100.0 + at)
    resumed.advance(110.0)
    assert resumed.live.value(STEP) == 10.0
    assert resumed.live.value(Metric("posttrain_run_seconds_since_step")) == 6.0


def test_a_dump_that_counts_from_zero_beside_a_log_that_counts_from_one() -> None:
    both = run()
    for at in range(1, 6):
        both.take(Row({Metric("posttrain_trainer_loss"): 1.0}, at), 10.0 * at)
        both.take(batch_of([10], [at - 1]), 10.0 * at + 5)
    both.advance(60.0)
    assert both.live.value(STEP) == 5.0
    assert both.live.value(Metric("posttrain_run_step_seconds_median")) == 10.0
    assert both.live.value(Metric("posttrain_run_seconds_since_step")) == 10.0


def test_steps_that_are_read_in_one_go_say_nothing_of_the_pace() -> None:
    late = run()
    for at, steps in ((100.0, range(1, 31)), (110.0, range(31, 36)), (120.0, range(36, 41))):
        for step in steps:
            late.take(Row({Metric("posttrain_trainer_loss"): 1.0}, step), at)
        late.advance(at)
        median = late.live.value(Metric("posttrain_run_step_seconds_median"))
        assert median == (None if at == 100.0 else 2.0)


def test_a_finished_run_that_goes_on_is_not_finished() -> None:
    again = run()
    again.take(Row({Metric("posttrain_trainer_loss"): 1.0}, 1), 0.0)
    again.take(Event("run_finished", "done"), 1.0)
    assert again.finished
    again.take(Row({Metric("posttrain_trainer_loss"): 1.0}, 2), 2.0)
    assert not again.finished


def test_the_most_confident_word_on_a_cause_wins_and_healthy_gives_way() -> None:
    def said(cause: str, confidence: float) -> Diagnosis:
        return Diagnosis(cause, confidence, "", {}, ())

    found = ranked([said("healthy", 0.9), said("stale_weights", 0.6), said("stale_weights", 0.8), said("unknown", 0.3)])
    assert [(d.cause, d.confidence) for d in found] == [("stale_weights", 0.8), ("unknown", 0.3)]


def test_a_device_that_was_asked_for_is_taken_and_auto_needs_a_gpu_with_room() -> None:
    assert choose("cuda:3", 1) == "cuda:3"
    assert choose("auto", 1 << 60) == "cpu"


def test_a_clock_that_is_set_back_does_not_end_the_watch() -> None:
    pipeline = Pipeline(Config(limits={"kl": 0.1}), RuleSet())
    assert [pipeline.tick(now).time for now in (100.0, 40.0, 130.0)] == [100.0, 100.0, 130.0]


def test_series_beyond_the_caps_are_counted() -> None:
    pipeline = Pipeline(Config.model_validate({"series": {"max_series": 3}, "limits": {"a": 1, "b": 2}}), RuleSet())
    many = pipeline.run(RunConfig(name="r"))
    many.take(Row({Metric("posttrain_trainer_value", {"key": str(i)}): 1.0 for i in range(9)}, None, 1.0), 1.0)
    pipeline.tick(1.0)
    assert pipeline.dropped > 0
