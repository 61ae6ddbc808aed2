"""The real daemon follows bundled recordings as they are replayed at speed into a temporary folder.

Two runs side by side, one healthy, one that goes wrong; what the daemon concludes is printed as it comes.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from posttrain_watchdog.config import Config, RunConfig
from posttrain_watchdog.daemon import Daemon
from posttrain_watchdog.model import Diagnosis
from posttrain_watchdog.performance import Performer
from posttrain_watchdog.pipeline import SPOKEN, Tick
from posttrain_watchdog.shipped import demo_recording, rule_files

RUNS = ("healthy", "raw-logprobs")
STEPS_PER_SECOND = 4.0

Say = Callable[[str], None]


class Announcer:
    """Prints every alert and every diagnosis once, as it comes."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._named: set[tuple[str, str]] = set()

    def __call__(self, tick: Tick) -> None:
        for transition in tick.transitions:
            alert = transition.alert
            if transition.state in ("firing", "resolved"):
                severity = alert.labels.get("severity", "").upper()
                word = severity if transition.state == "firing" else "RESOLVED"
                self._say(
                    f"{word} {alert.name}  run {alert.labels.get('run', '')}: {alert.annotations.get('summary', '')}"
                )
        for run, diagnoses in tick.diagnoses.items():
            for diagnosis in diagnoses:
                if diagnosis.confidence >= SPOKEN and (run, diagnosis.cause) not in self._named:
                    self._named.add((run, diagnosis.cause))
                    self.name(run, diagnosis)

    def name(self, run: str, diagnosis: Diagnosis) -> None:
        """One diagnosis with its evidence and its checks."""
        since = "" if diagnosis.first_step is None else f" from step {diagnosis.first_step}"
        self._say(f"CAUSE {diagnosis.cause}  run {run}, confidence {diagnosis.confidence:.2f}{since}")
        self._say(f"  {diagnosis.summary}")
        figures = ", ".join(
            f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in diagnosis.evidence.items()
        )
        self._say(f"  evidence: {figures}")
        for place, check in enumerate(diagnosis.first_checks, 1):
            self._say(f"  {place}. {check}")


async def demo(*, speed: float, once: bool, listen: str, say: Say) -> dict[str, list[Diagnosis]]:
    """Runs the demo; returns the final diagnoses of each run. Raises OSError if the address is taken.

    `speed` multiplies the pace of four steps a second. With `once` it ends when the recordings do.
    """
    pace = max(0.01, 1.0 / (STEPS_PER_SECOND * speed))
    with tempfile.TemporaryDirectory(prefix="posttrain-watchdog-demo-") as folder:
        root = Path(folder)
        runs = [RunConfig(name=name, paths=[str(root / name)]) for name in RUNS]
        config = Config.model_validate(
            {
                "runs": [run.model_dump() for run in runs],
                "web": {"listen": listen},
                "poll_interval": min(1.0, pace),
                "evaluation_interval": min(1.0, pace),
                "host": {"processes": False},
            }
        )
        daemon = Daemon(config, rule_files())
        announcer = Announcer(say)
        daemon.listeners.append(announcer)
        performing = asyncio.create_task(_perform(root, pace))
        say(f"following {', '.join(RUNS)}; status page on http://{listen}/ (Ctrl-C ends)")
        try:
            await daemon.serve(until=performing.done if once else None)
        finally:
            performing.cancel()
        if performing.done() and not performing.cancelled():
            performing.result()
        return {name: list(run.diagnoses) for name, run in daemon.pipeline.runs.items()}


async def _perform(root: Path, pace: float) -> None:
    performers = [Performer(demo_recording() / name, root / name) for name in RUNS]
    going = True
    while going:
        # a list, because every performer has its turn
        going = any([performer.perform() is not None for performer in performers])  # noqa: C419
        await asyncio.sleep(pace)
