"""ROLL's log: bare JSON of all metrics with reducer tags (`actor/pg_loss@sum`), or `metrics_tag: {...}`.

8eb27cc2, driven. policykl is mean(current - old), opposite to the canonical ppo_kl, so it is negated; the train_infer
ratios are raw. total_response_length/clip counts sequences, and critic/entropy/mean is 0 where nothing measured it:
both keep their own names. A validation has no step of its own: it belongs to the step that comes next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers import text
from posttrain_watchdog.sources.trainers.steps import StepCounter, whole
from posttrain_watchdog.sources.trainers.table import Table

KEYS: Mapping[str, str] = {
    "critic/rewards/mean": "reward_mean",
    "critic/score/mean": "reward_mean",
    "critic/rewards/max": "reward_max",
    "critic/rewards/min": "reward_min",
    "critic/advantages/mean": "advantage_mean",
    "token/response_length/mean": "completion_length_mean",
    "tokens/response_length/mean": "completion_length_mean",
    "token/response_length/max": "completion_length_max",
    "tokens/response_length/max": "completion_length_max",
    "actor/total_loss": "loss",
    "actor/pg_loss": "policy_loss",
    "actor_train/grad_norm": "grad_norm",
    "actor/lr": "learning_rate",
    "actor/kl_loss": "kl_ref",
    "critic/kl": "kl_ref",
    "actor/policykl": "ppo_kl",
    "actor/ratio_mean": "ppo_ratio_mean",
    "actor/ppo_ratio_clipfrac": "clip_fraction",
    "actor/clipfrac": "clip_fraction",
    "actor/ppo_ratio_low_clipfrac": "clip_fraction_low",
    "actor/ppo_ratio_high_clipfrac": "clip_fraction_high",
    "time/step_total": "step_seconds",
    "time/step_generate": "generation_seconds",
    "time/step_train": "training_seconds",
    "time/old_log_probs": "logprob_seconds",
    "time/step_model_update": "weight_sync_seconds",
    "system/tps_gpu": "tokens_per_second_per_gpu",
    "actor/train_infer_ratio_token_mean": "is_ratio_mean",
    "actor/train_infer_diff_token_mean": "probability_difference_mean",
    "actor/is_weight_clipfrac": "is_out_of_bounds_fraction_high",
}

SCALES = {"actor/policykl": -1.0}
_TAGGED = re.compile(r'(?:\[[^\]]*\] ?){0,6}(?:metrics_tag: )?(\{"[\w/@]+"\s*:)')
_TRAINED = ("actor", "critic/", "token", "system/")
_KEYS_OF_ROLL = ('"actor/', '"critic/', '"system/', '"token')


def recognises(line: str) -> bool:
    match = _TAGGED.match(text.bare(line))
    return match is not None and any(key in line for key in _KEYS_OF_ROLL) and ("@" in line or "metrics_tag" in line)


class Dialect:
    """Reads one log."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._table = Table(KEYS, SCALES, frozenset({"step", "system/global_step"}))
        self._steps = StepCounter(logging_steps)
        self._stamps = text.Stamps()
        self._waiting: text.Numbers = {}

    def feed(self, line: str) -> Iterable[Row | Event]:
        return self._read(line) if '{"' in line else ()

    def close(self) -> Iterable[Row | Event]:
        return self._steps.last()

    def _read(self, line: str) -> Iterable[Row | Event]:
        line = text.bare(line)
        match = _TAGGED.match(line)
        numbers = text.json_numbers(line[match.start(1) :]) if match else None
        if numbers is None:
            return ()
        time = self._stamps.take(line)[0]
        plain = {key.partition("@")[0].removeprefix("metrics/"): value for key, value in numbers.items()}
        step = whole(plain.get("step"))
        if step is None:
            step = whole(plain.get("system/global_step"))
        if step is None:
            if not any(key.startswith(_TRAINED) for key in plain):
                self._waiting.update(plain)
                return ()
            step = self._steps.counted()
            return self._table.rows(self._with_waiting(plain), step, time)
        plain = self._with_waiting(plain)
        return self._steps.told(step, time, self._table.rows(plain, step, time))

    def _with_waiting(self, plain: text.Numbers) -> text.Numbers:
        waiting, self._waiting = self._waiting, {}
        return {**waiting, **plain} if waiting else plain
