"""Files that the trackers themselves wrote, each of the same four steps: what is read is what was logged.

Written by wandb 0.31.0 (offline; `split`: with a record longer than a block), swanlab 0.10.3 and 0.7.20 (offline),
torch 2.13.0 (torch.utils.tensorboard), tensorboardX 2.6.5 and tensorboard 2.21.0 (`tensorboard.summary`, scalars as
tensors like TensorFlow 2), with text and histograms among the scalars where the program can write them. The timings
were logged as a nested value to wandb and to swanlab 0.10, which name its leaves.
"""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest
from conftest import ROOT

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources import kinds
from posttrain_watchdog.sources.binary import Growing
from posttrain_watchdog.vocabulary.trainer import PREFIX

FOLDER = ROOT / "tests" / "data" / "trackers"
FILES = {
    "wandb-0.31.wandb": kinds.WANDB,
    "wandb-0.31-split.wandb.gz": kinds.WANDB,
    "swanlab-0.10.swanlab": kinds.SWANLAB,
    "swanlab-0.7.swanlab.gz": kinds.SWANLAB,
    "torch-2.13.tfevents": kinds.EVENTS,
    "tensorboardX-2.6.tfevents": kinds.EVENTS,
    "tensorboard-2.21.tfevents": kinds.EVENTS,
}
LOGGED = {
    step: {
        "policy_loss": 0.125 * step,
        "grad_norm": math.nan if step == 3 else 0.1 * step,
        "mismatch_kl_k1": 0.001,
        "reward_mean": 0.0,
        "generation_seconds": 2.5,
        "step_seconds": 4.0,
    }
    for step in (1, 2, 3, 4)
}


def content(name: str) -> bytes:
    data = (FOLDER / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def told(items: list[Row | Event]) -> dict[int | None, dict[str, float]]:
    """Step -> short name or own key -> number."""
    found: dict[int | None, dict[str, float]] = {}
    for item in items:
        if isinstance(item, Row):
            values = {dict(m.labels).get("key", m.name.removeprefix(PREFIX)): v for m, v in item.values.items()}
            found.setdefault(item.step, {}).update({k: v for k, v in values.items() if k != "non_finite_total"})
    return found


def test_every_file_of_a_tracker_is_tried() -> None:
    assert {p.name for p in FOLDER.iterdir()} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_what_is_read_is_what_was_logged(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(name))
    kind = kinds.classify(path)
    assert kind.name == FILES[name]
    file = Growing(path, kind.name)
    items = [*file.poll(), *file.close()]
    found = told(items)
    assert list(found) == list(LOGGED)
    for step, values in LOGGED.items():
        assert found[step] == pytest.approx(values, rel=1e-6, nan_ok=True), step
    assert file.dialect == "verl"
    assert [(i.kind, i.step) for i in items if isinstance(i, Event)] == [("nan_loss", 3)]
    times = [item.time for item in items if isinstance(item, Row)]
    assert [time for time in times if time is None or not 1.79e9 < time < 1.8e9] == []


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("size", [7, 700, 5000])
def test_a_file_that_grows_in_any_pieces_gives_the_same(name: str, size: int, tmp_path: Path) -> None:
    data = content(name)
    path = tmp_path / "file"
    path.write_bytes(b"")
    file = Growing(path, FILES[name])
    items: list[Row | Event] = []
    with path.open("ab", buffering=0) as writer:
        for place in range(0, len(data), size):
            writer.write(data[place : place + size])
            items += file.poll()
    items += file.close()
    assert told(items).keys() == LOGGED.keys()
    for step, values in told(items).items():
        assert values == pytest.approx(LOGGED[step or 0], rel=1e-6, nan_ok=True), step


@pytest.mark.parametrize("name", FILES)
def test_a_file_whose_end_is_missing_gives_the_steps_before(name: str, tmp_path: Path) -> None:
    data = content(name)
    path = tmp_path / "file"
    for end in range(7, len(data), 1 + len(data) // 60):
        path.write_bytes(data[:end])
        file = Growing(path, FILES[name])
        found = told([*file.poll(), *file.close()])
        assert list(found) == list(LOGGED)[: len(found)]
        for step in list(found)[:-1]:
            assert found[step] == pytest.approx(LOGGED[step or 0], rel=1e-6, nan_ok=True), (end, step)
