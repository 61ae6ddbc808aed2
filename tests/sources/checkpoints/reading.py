"""A process that reads a file into a table and keeps its place, and dies where it is told to.

    python reading.py STATE LOG MOMENT COUNT

MOMENT: the point of the COUNT-th round with news at which it kills itself (`never`: it ends when nothing is new).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from posttrain_watchdog.sources.checkpoints import Checkpoints
from posttrain_watchdog.sources.tail import Tail
from posttrain_watchdog.state import State

BUDGET = 700
"""bytes a poll: several rounds for one file"""


def main(state_path: str, log: str, moment: str, count: int) -> None:
    checkpoints = Checkpoints(State(Path(state_path)))
    with checkpoints.transaction() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS readings (line BLOB)")
    path = Path(log)
    tail = Tail(path, checkpoints.load("run").get(path))
    idle = rounds = 0

    def die(here: str) -> None:
        if moment == here and rounds == count:
            os.kill(os.getpid(), signal.SIGKILL)

    while idle < 3:
        found = False
        with checkpoints.transaction() as connection:
            for chunk in tail.poll(BUDGET):
                rounds, found = rounds + (not found), True
                connection.executemany("INSERT INTO readings VALUES (?)", [(line,) for line in chunk.lines])
                die("before the place is saved")
            checkpoints.save("run", {path: tail.position()})
            die("before the commit")
        die("after the commit")
        idle = 0 if found else idle + 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
