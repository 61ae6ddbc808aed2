"""A backlog of any size neither holds the daemon's other duties up nor fills its memory."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from posttrain_watchdog import daemon as daemon_module
from posttrain_watchdog.config import Config
from posttrain_watchdog.daemon import Daemon
from posttrain_watchdog.model import Event, Metric, Row
from posttrain_watchdog.series.live import LiveSeries
from posttrain_watchdog.shipped import rule_files
from posttrain_watchdog.sources.checkpoints import Checkpoints
from posttrain_watchdog.state import State

LINE = "{{'loss': 0.5, 'grad_norm': 0.25, 'learning_rate': 1e-06, 'step': {}}}\n"
STEPS = 20_000


@pytest.fixture
def behind(tmp_path: Path) -> Daemon:
    """A daemon that has two files of some megabytes before it."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.log").write_text("".join(LINE.format(n) for n in range(1, STEPS + 1)))
    return Daemon(
        Config.model_validate(
            {
                "runs": [{"name": "r", "paths": [str(tmp_path / "*.log")]}],
                "nvml": {"enabled": False},
                "host": {"kernel_log": False, "processes": False},
            }
        ),
        rule_files(),
    )


def test_other_duties_have_their_turn_while_a_backlog_is_read_and_rules_see_all_of_it(
    behind: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "_LONG_SECONDS", 0.0)
    turns, ticked_at = 0, []
    behind.listeners.append(lambda _: ticked_at.append(behind.pipeline.runs["r"].step))

    async def live() -> None:
        nonlocal turns
        reading = asyncio.gather(behind._poll(), behind._tick())
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)
        await behind.close()

    asyncio.run(live())
    assert turns > 100
    assert ticked_at == [STEPS]


def test_a_daemon_that_is_stopped_leaves_the_rest_of_a_backlog(behind: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_module, "_LONG_SECONDS", 0.0)

    async def live() -> None:
        reading = asyncio.create_task(behind._poll())
        await asyncio.sleep(0)
        await behind.close()
        await reading

    asyncio.run(live())
    assert (behind.pipeline.runs["r"].step or 0) < STEPS


def test_rows_do_not_wait_for_a_tick_by_the_million() -> None:
    live = LiveSeries()
    metrics = [Metric(f"posttrain_trainer_m{i}") for i in range(10)]

    def more(first: int, count: int) -> None:
        for step in range(first, first + count):
            live.add(Row(dict.fromkeys(metrics, float(step)), step))

    tracemalloc.start()
    more(0, 10_000)
    few = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    more(10_000, 50_000)
    many = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert many < 1.5 * few
    assert live.value(metrics[0]) == 59_999.0


def test_items_of_one_poll_wait_for_the_save_only_as_far_as_they_are_kept(tmp_path: Path) -> None:
    kept = Checkpoints(State(tmp_path / "s"), most_light=10, most_heavy=10)
    tracemalloc.start()
    for n in range(20_000):
        kept.note("r", Path("f"), 0.0, Event("nan_loss", str(n)))
    assert tracemalloc.get_traced_memory()[0] < 200_000
    tracemalloc.stop()
    kept.save("r", {})
    texts = [each.item.text for each in kept.items() if isinstance(each.item, Event)]
    assert texts[-10:] == [str(n) for n in range(19_990, 20_000)]
