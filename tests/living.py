"""A daemon that polls and ticks a folder until nothing is new, and may kill itself in the middle of a poll.

    python living.py STATE FOLDER TIME COUNT

COUNT: the item that it dies of, in the middle of the poll that gave it; 0 lets it live. It then prints what it knows.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from posttrain_watchdog.config import Config
from posttrain_watchdog.daemon import Daemon
from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.shipped import rule_files


def main(state: str, folder: str, time: float, count: int) -> None:
    config = Config.model_validate(
        {
            "runs": [{"name": "raw", "paths": [folder]}],
            "state": state,
            "nvml": {"enabled": False},
            "host": {"kernel_log": False, "processes": False},
        }
    )
    now = time
    daemon = Daemon(config, rule_files(), now=lambda: now)
    run = daemon.pipeline.runs["raw"]
    seen = 0

    def count_and_die(_: Row | Event) -> None:
        nonlocal seen
        seen += 1
        if seen == count:
            os.kill(os.getpid(), signal.SIGKILL)

    run.observers.append(count_and_die)
    for _ in range(3):
        daemon.poll()
        daemon.tick()
        now += 1.0
    print(json.dumps({"series": run.live.last(), "causes": [(d.cause, d.first_step) for d in run.diagnoses]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
