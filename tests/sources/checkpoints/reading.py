"""A process that takes the lines of a file as events and keeps its place, and dies where it is told to.

    python reading.py STATE LOG MOMENT COUNT

MOMENT: the point of the COUNT-th round with news at which it kills itself (`never`: it ends when nothing is new).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from posttrain_watchdog.model import Event
from posttrain_watchdog.sources.checkpoints import Checkpoints, Place
from posttrain_watchdog.sources.tail import Tail
from posttrain_watchdog.state import State

BUDGET = 700
"""bytes a poll: several rounds for one file"""


def main(state_path: str, log: str, moment: str, count: int) -> None:
    state = State(Path(state_path))
    checkpoints = Checkpoints(state)
    path = Path(log)
    tail = Tail(path, checkpoints.places("run").get(path, Place()).position)
    idle = rounds = 0

    def die(here: str) -> None:
        if moment == here and rounds == count:
            os.kill(os.getpid(), signal.SIGKILL)

    while idle < 3:
        found = False
        for chunk in tail.poll(BUDGET):
            rounds, found = rounds + (not found), True
            for line in chunk.lines:
                checkpoints.note("run", path, 1.0, Event("oom", line.decode()))
            die("before the save")
        with state.transaction():  # the outermost: so that there is a moment between the save and its commit
            checkpoints.save("run", {path: Place(tail.position())})
            die("before the commit")
        die("after the commit")
        idle = 0 if found else idle + 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
