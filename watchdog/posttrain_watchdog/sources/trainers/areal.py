"""AReaL's statistics tables: `\u2502 key \u2502 1.0000e+00 \u2502` cells in several columns (4aef98d8).

behave_approx_kl is mean(+d) and approx_kl is mean(current - proximal), both opposite to the canonical sign, so they
are negated. The behave weights are means over what rejection left, after clamping.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

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
    "ppo_actor/seq_len/avg": "completion_length_mean",
    "ppo_actor/seq_len/max": "completion_length_max",
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
    "ppo_actor/update/behave_imp_weight/min": "is_ratio_min",
    "ppo_actor/update/behave_imp_weight/max": "is_ratio_max",
    "ppo_actor/update/behave_approx_kl/avg": "mismatch_kl_k1",
    "ppo_actor/update/rs_filtered_fraction": "is_out_of_bounds_fraction",
    "ppo_actor/update/new_logp/avg": "trainer_logprob_mean",
    "ppo_actor/update/old_logp/avg": "rollout_logprob_mean",
}

_SCALES = {"ppo_actor/update/behave_approx_kl/avg": -1.0, "ppo_actor/update/approx_kl/avg": -1.0}
_HEADER = re.compile(r".*StatsLogger INFO: Epoch \d+/\d+ Step \d+/\d+ Train step (\d+)/\d+ done")
_CELL = re.compile(
    r"[\u2502|]\s*([\w./@\-]+/[\w./@\-]+|\w+)\s*[\u2502|]\s*([-+]?\d\.\d+e[-+]\d+|nan|inf|-inf)\s*(?=[\u2502|])"
)


def recognises(line: str) -> bool:
    return _HEADER.match(line) is not None


class Dialect:
    """Reads one log."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._table = Table(KEYS, _SCALES)
        self._steps = StepCounter(logging_steps)
        self._block: text.Numbers = {}

    def feed(self, line: str) -> Iterable[Row | Event]:
        return self._read(line) if "\u2502" in line or "StatsLogger" in line else ()

    def _read(self, line: str) -> Iterator[Row | Event]:
        line = text.bare(line)
        header = _HEADER.match(line)
        if header is not None:
            yield from self.close()
            yield from self._steps.told(int(header.group(1)))
            return
        if self._steps.step is None or not line.lstrip().startswith("\u2502"):
            return
        place = 0
        while (cell := _CELL.search(line, place)) is not None:
            self._block[cell.group(1)] = text.number(cell.group(2))
            place = cell.end()

    def close(self) -> Iterable[Row | Event]:
        block, self._block = self._block, {}
        return list(self._table.rows(block, self._steps.step)) if block else ()
