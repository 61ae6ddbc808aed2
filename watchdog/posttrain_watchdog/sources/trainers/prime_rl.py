"""prime-rl's metrics.jsonl, shared by trainer and orchestrator, and its console lines (559b4477, driven).

The console is coloured whatever it goes to, has a tag in front of the message where there is one, and is JSON with
`log.json_logging`; the shares of each environment follow on lines of their own and are in the file only.
Several rows a step with disjoint keys; non-finite values are dropped by the writer, which says so in its log.
mismatch_kl is k3 of the current policy against the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources.trainers import text
from posttrain_watchdog.sources.trainers.steps import Onward, StepCounter, whole
from posttrain_watchdog.sources.trainers.table import Table

KEYS: Mapping[str, str] = {
    "loss/mean": "loss",
    "optim/grad_norm": "grad_norm",
    "optim/lr": "learning_rate",
    "entropy/all/mean": "entropy",
    "train/agg/effective/*/reward/mean": "reward_mean",
    "train/agg/effective/num_output_tokens/mean": "completion_length_mean",
    "train/agg/effective/num_output_tokens/max": "completion_length_max",
    "train/agg/effective/*/is_truncated/mean": "truncated_fraction",
    "progress/tokens": "tokens_total",
    "perf/throughput": "tokens_per_second",
    "perf/throughput_per_gpu": "tokens_per_second_per_gpu",
    "perf/mfu": "mfu",
    "time/step": "step_seconds",
    "time/forward_backward": "training_seconds",
    "time/wait_for_batch": "wait_seconds",
    "time/broadcast_weights": "weight_sync_seconds",
    "off_policy/mean": "staleness_mean",
    "off_policy/max": "staleness_max",
    "off_policy/dropped": "stale_dropped",
    "mismatch_kl/all/mean": "mismatch_kl_k3",
    "mismatch_kl/mean": "mismatch_kl_k3",
    "is_masked/mean": "masked_fraction_token",
    "max_vio/mean": "moe_max_violation",
}

SCALES = {"perf/mfu": 0.01}
_CONSOLE: Mapping[str, str] = {
    "Loss": "loss",
    "Entropy": "entropy",
    "Mismatch KL": "mismatch_kl_k3",
    "Grad. Norm": "grad_norm",
    "LR": "learning_rate",
    "Throughput": "tokens_per_second",
    "MFU": "mfu",
    "Reward": "reward_mean",
    "Max Off-Policy": "staleness_max",
    "Truncation": "truncated_fraction",
}
_LINE = re.compile(
    r"(?:\d\d:\d\d:\d\d\s+SUCCESS (?:\[[^\]]*\] )?"
    r'|\{"timestamp": "(?P<time>[^"]+)", "level": "SUCCESS", "message": ")'
    r'Step (?P<step>\d+) \|\s*(?P<parts>[^"]*)'
)
_PART = re.compile(r"([A-Z][\w.\- ]*?) ([-+\d.eE]+|nan|inf|-inf)(%?)(?: .*)?$")
_DROPPED = re.compile(r"Dropping \d+ non-finite value\(s\) from metrics")
_JSON = re.compile(r'\{\s*"step"\s*:\s*\d+\s*,\s*"time"\s*:')
_IGNORED = frozenset({"step", "time"})


def recognises(line: str) -> bool:
    return _JSON.match(line) is not None or _LINE.match(text.bare(line)) is not None


class Dialect:
    """Reads one metrics.jsonl or one console."""

    def __init__(self, logging_steps: int = 1) -> None:
        self._table = Table(KEYS, SCALES, _IGNORED)
        self._console = Table(_CONSOLE)
        self._steps = StepCounter(logging_steps)
        self._onward = Onward()
        self._stamps = text.Stamps()

    def feed(self, line: str) -> Iterable[Row | Event]:
        if '"step"' in line or "SUCCESS" in line or "non-finite" in line:
            return self._read(line)
        return ()

    def close(self) -> Iterable[Row | Event]:
        return self._steps.last()

    def _read(self, line: str) -> Iterable[Row | Event]:
        line = text.bare(line)
        if "non-finite" in line and _DROPPED.search(line):
            return [Event("nan_loss", line.strip()[:300], {}, self._steps.step)]
        match = _LINE.match(line)
        if match is not None:
            found: text.Numbers = {}
            for part in match["parts"].partition("\\n")[0].split("|"):
                pair = _PART.match(part.strip())
                if pair is not None:
                    value = text.number(pair.group(2))
                    found[pair.group(1)] = value / 100 if value is not None and pair.group(3) else value
            step, time = int(match["step"]), self._stamps.take(match["time"] or line)[0]
            return self._paced(next(iter(found), ""), step, time, self._console.rows(found, step, time))
        numbers = text.json_numbers(line) if _JSON.match(line) else None
        number = whole(numbers.get("step")) if numbers else None
        if numbers is None or number is None:
            return ()
        time = numbers.get("time")
        kind = next((key for key in numbers if key not in _IGNORED), "")
        return self._paced(kind, number, time, self._table.rows(numbers, number, time))

    def _paced(self, kind: str, step: int, time: float | None, items: list[Row | Event]) -> list[Row | Event]:
        # trainer and orchestrator write at their own pace: a step that is a little behind is no resume
        back = self._onward.goes_back(kind, step)
        behind = self._steps.step is not None and self._steps.step - 8 <= step < self._steps.step
        if behind and not back and not self._steps.holds:
            return items
        return self._steps.told(step, time, items)
