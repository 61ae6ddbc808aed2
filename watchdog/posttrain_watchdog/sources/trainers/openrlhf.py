"""OpenRLHF's console: `Global step N: {...}` (0.11.0, driven at 3c3be623).

Of older ones the progress bar's postfix is read. vllm_kl is mean(-d), the canonical k1; ppo_kl is mean(old - current).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers import text
from posttrain_watchdog.sources.trainers.steps import StepCounter
from posttrain_watchdog.sources.trainers.table import Table

KEYS: Mapping[str, str] = {
    "policy_loss": "policy_loss",
    "actor_grad_norm": "grad_norm",
    "actor_lr": "learning_rate",
    "entropy_loss": "entropy",
    "kl": "kl_ref",
    "ppo_kl": "ppo_kl",
    "ppo_clip_ratio": "clip_fraction",
    "rollout/reward_mean": "reward_mean",
    "reward": "reward_mean",
    "rollout/reward_std": "reward_std",
    "group_reward_std": "reward_std",
    "rollout/response_length_mean": "completion_length_mean",
    "response_length": "completion_length_mean",
    "rollout/truncated_rate": "truncated_fraction",
    "truncated": "truncated_fraction",
    "response_clip_ratio": "truncated_fraction",
    "timing/step_total": "step_seconds",
    "timing/generation": "generation_seconds",
    "timing/ppo_train": "training_seconds",
    "timing/make_experience": "logprob_seconds",
    "timing/broadcast": "weight_sync_seconds",
    "vllm_kl": "mismatch_kl_k1",
    "critic_loss": "value_loss",
}

_POSTFIX: Mapping[str, str] = {
    "pg": "policy_loss",
    "rm": "reward_mean",
    "glen": "completion_length_mean",
    "kl": "kl_ref",
    "act_lr": "learning_rate",
    "cri": "value_loss",
}
_LINE = re.compile(r"(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d [\w.]+:\d+\] )?\W{0,4}Global step (\d+): \{")
_BAR = re.compile(r"(Train epoch|Episode) \[(\d+)/\d+\]:\s+\d+%\|[^|]*\|\s*(\d+)/(\d+) \[([^\]]*)\]")
_PAIR = re.compile(r"(\w+)=([-+\w.]+)")


def recognises(line: str) -> bool:
    match = _BAR.search(line)
    return ("Global step " in line and _LINE.match(text.bare(line)) is not None) or (
        match is not None and "pg=" in match.group(5)
    )


class Dialect:
    """Reads one console."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._table = Table(KEYS)
        self._bars = Table(_POSTFIX, ignored=frozenset({"ret", "tlen"}))
        self._steps = StepCounter(logging_steps)
        self._last: tuple[str, str, str] | None = None

    def feed(self, line: str) -> Iterable[Row | Event]:
        return self._read(line) if "Global step " in line or "pg=" in line else ()

    def close(self) -> Iterable[Row | Event]:
        return self._steps.last()

    def _read(self, line: str) -> Iterable[Row | Event]:
        plain = text.bare(line)
        match = _LINE.match(plain)
        if match is not None:
            step = int(match.group(1))
            numbers = text.python_dict(plain[match.end() - 1 :])
            return self._steps.told(step, None, self._table.rows(numbers, step))
        found: list[Row | Event] = []
        for bar in _BAR.finditer(line):
            place = (bar.group(1), bar.group(2), bar.group(3))
            pairs: text.Numbers = {k: text.number(v) for k, v in _PAIR.findall(bar.group(5))}
            if "pg" not in pairs or place == self._last:
                continue
            self._last = place
            found += self._bars.rows(pairs, self._steps.counted())
        return found
