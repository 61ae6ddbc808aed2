"""A writer that rotates, empties, deletes and is killed; a reader that is killed too. Compared with the truth."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from pathlib import Path

import pytest

from posttrain_watchdog.sources.tail import Position, Tail

SEEDS = int(os.environ.get("WATCHDOG_SEEDS", "12"))
"""histories to try; some thousand take minutes"""
MOST_ROTATIONS = 2
"""between two polls: the writer keeps no more files than that"""


class Writer:
    """Writes numbered lines, at times in halves; keeps three rotated files, the oldest packed."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.path = folder / "train.log"
        self.truth: list[bytes] = []
        self._chance = chance
        self._file = self.path.open("ab", buffering=0)

    def close(self) -> None:
        self._file.close()

    def write(self) -> None:
        for _ in range(self._chance.randrange(1, 30)):
            line = b"line %d %s" % (len(self.truth), b"x" * self._chance.choice((0, 10, 1000)))
            self.truth.append(line)
            cut = self._chance.randrange(len(line))
            self._file.write(line[:cut])
            self._file.write(line[cut:] + b"\n")

    def rotate(self) -> None:
        if self._file.tell() == 0 and self.path.stat().st_size == 0:
            return
        self._shift()
        self.path.rename(self.path.with_name("train.log.1"))
        if self._chance.random() < 0.3:
            self.write()  # late: it has not heard of the rename yet
        self._file.close()
        self._file = self.path.open("ab", buffering=0)
        self.write()

    def copy_and_empty(self) -> None:
        self._shift()
        shutil.copy2(self.path, self.path.with_name("train.log.1"))
        self._file.truncate(0)
        self.write()

    def _shift(self) -> None:
        first, second, third = (self.path.with_name(f"train.log.{n}") for n in (1, 2, "3.gz"))
        if second.exists():
            with gzip.open(third, "wb") as packed:
                packed.write(second.read_bytes())
            shutil.copystat(second, third)
            second.unlink()
        if first.exists():
            first.rename(second)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_to_the_file_every_line_comes_once(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    writer = Writer(tmp_path, chance)
    writer.write()
    tail, got = Tail(writer.path), []
    place: Position | None = None

    def poll() -> None:
        got.extend(line for chunk in tail.poll() for line in chunk.lines)

    poll()
    rotations = 0
    for _ in range(150):
        action = chance.random()
        if action < 0.45:
            writer.write()
        elif action < 0.6 and rotations < MOST_ROTATIONS:
            writer.rotate()
            rotations += 1
        elif action < 0.7 and rotations < MOST_ROTATIONS:
            writer.copy_and_empty()
            rotations += 1
        elif action < 0.8:
            tail.release()
        elif action < 0.9:
            poll()  # a killed reader goes on from what it saved after its last poll
            place = tail.position()
            tail.close()
            tail = Tail(writer.path, place)
            rotations = 0
        if chance.random() < 0.6:
            poll()
            rotations = 0
    for _ in range(20):
        poll()
    got.extend(line for chunk in tail.finish() for line in chunk.lines)
    tail.close()
    writer.close()
    assert tail.lost_files == 0
    assert len(got) == len(set(got))
    assert set(got) == set(writer.truth)
