"""AReaL's statistics tables: `\u2502 key \u2502 1.0000e+00 \u2502` cells in several columns (4aef98d8, driven).

A column of whole numbers only has no exponent. Each line of merged.log has its process in front, the table has not.

behave_approx_kl is mean(+d) and approx_kl is mean(current - proximal), both opposite to the canonical sign, so they
are negated. seq_len counts the prompt too, so the completion's length is its difference to prompt_len. The behave
weights are means over what rejection left, after clamping.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers import text
from posttrain_watchdog.sources.trainers.steps import StepCounter
from posttrain_watchdog.sources.trainers.table import Table

KEYS: Mapping[str, str] = {
    "ppo_actor/update/actor_loss/avg": "policy_loss",
    "ppo_actor/update/grad_norm": "grad_norm",
    "ppo_actor/update/lr": "learning_rate",
    "ppo_actor/update/entropy/avg": "entropy",
    "ppo_actor/update/approx_kl/avg": "ppo_kl",
    "ppo_actor/update/importance_weight/avg": "ppo_ratio_mean",
    "ppo_actor/update/clip_ratio/avg": "clip_fraction",
    "ppo_actor/task_reward/avg": "reward_mean",
    "ppo_actor/task_reward/max": "reward_max",
    "ppo_actor/task_reward/min": "reward_min",
    "completion_len/avg": "completion_length_mean",
    "ppo_actor/no_eos_ratios/avg": "truncated_fraction",
    "ppo_actor/advantages/avg": "advantage_mean",
    "timeperf/rollout": "generation_seconds",
    "timeperf/train_step": "training_seconds",
    "timeperf/recompute_logp": "logprob_seconds",
    "timeperf/update_weights": "weight_sync_seconds",
    "ppo_actor/update/version_stats/sample_staleness_theta_avg": "staleness_mean",
    "ppo_actor/update/version_stats/sample_staleness_theta_max": "staleness_max",
    "ppo_actor/update/version_stats/v_theta": "weight_version",
    "ppo_actor/update/behave_imp_weight/avg": "is_weight_mean",
    "ppo_actor/update/behave_imp_weight/min": "is_weight_min",
    "ppo_actor/update/behave_imp_weight/max": "is_weight_max",
    "ppo_actor/update/behave_approx_kl/avg": "mismatch_kl_k1",
    "ppo_actor/update/rs_filtered_fraction": "is_out_of_bounds_fraction",
    "ppo_actor/update/new_logp/avg": "trainer_logprob_mean",
    "ppo_actor/update/old_logp/avg": "rollout_logprob_mean",
}

SCALES = {"ppo_actor/update/behave_approx_kl/avg": -1.0, "ppo_actor/update/approx_kl/avg": -1.0}
_COMPLETION = "completion_len/avg"
_HEADER = re.compile(
    r"(?:\[[\w./:\-]+\] *)?(?:\(AReaL\) )?(\S+) StatsLogger INFO: Epoch \d+/\d+ Step \d+/\d+ Train step (\d+)/\d+ done"
)
_CELL = re.compile(
    r"[\u2502|]\s*([\w./@\-]+/[\w./@\-]+|\w+)\s*[\u2502|]\s*([-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?|nan|inf|-inf)\s*(?=[\u2502|])"
)


def recognises(line: str) -> bool:
    return "StatsLogger" in line and _HEADER.match(text.bare(line)) is not None


class Dialect:
    """Reads one log."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._table = Table(KEYS, SCALES)
        self._steps = StepCounter(logging_steps)
        self._block: text.Numbers = {}
        self._step: int | None = None
        self._time: float | None = None

    def feed(self, line: str) -> Iterable[Row | Event]:
        return self._read(line) if "\u2502" in line or "StatsLogger" in line else ()

    def close(self) -> Iterable[Row | Event]:
        return [*self._finished(), *self._steps.last()]

    def _read(self, line: str) -> Iterable[Row | Event]:
        line = text.bare(line)
        header = _HEADER.match(line)
        if header is not None:
            found = self._finished()
            self._step, self._time = int(header.group(2)), _time(header.group(1))
            return found
        if self._step is None or not line.lstrip().startswith("\u2502"):
            return ()
        place = 0
        while (cell := _CELL.search(line, place)) is not None:
            self._block[cell.group(1)] = text.number(cell.group(2))
            place = cell.end()
        return ()

    def _finished(self) -> list[Row | Event]:
        block, self._block = self._block, {}
        step, self._step = self._step, None
        if not block or step is None:
            return []
        whole, prompt = block.get("ppo_actor/seq_len/avg"), block.get("ppo_actor/prompt_len/avg")
        if whole is not None and prompt is not None:
            block[_COMPLETION] = whole - prompt
        return self._steps.told(step, self._time, self._table.rows(block, step, self._time))


def _time(stamp: str) -> float | None:
    """`20261130-12:00:00.000` in seconds."""
    date, _, clock = stamp.partition("-")
    return text.stamp(f"{date[:4]}-{date[4:6]}-{date[6:]} {clock}")[0]
