"""The real pynvml against a scripted driver library: healthy, lost, hung, crashed, absent, split."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT

from posttrain_watchdog.model import Metric
from posttrain_watchdog.sources.host.nvml import NvmlPoller, Poll
from posttrain_watchdog.vocabulary import METRICS

Script = Callable[[str], None]
G0, G1 = "00000000:10:00.0", "00000000:11:00.0"


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the scripted driver cannot be built")
    folder = tmp_path_factory.mktemp("nvml")
    source = ROOT / "tests" / "nvml" / "fake_nvml.c"
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(source)], check=True)
    return folder


@pytest.fixture
def script(tmp_path: Path) -> Script:
    def write(text: str) -> None:
        (tmp_path / "state").write_text(text)

    write("gpus 1\n")
    return write


@pytest.fixture
def poller(driver: Path, tmp_path: Path) -> Iterator[NvmlPoller]:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(driver),
        "FAKE_NVML_STATE": str(tmp_path / "state"),
        "PYTHONPATH": str(ROOT / "watchdog"),
    }
    made = NvmlPoller(deadline=20.0, environment=environment)
    yield made
    made.close()


def values(poll: Poll) -> dict[str, float]:
    return {repr(m): v for row in poll.rows for m, v in row.values.items()}


def test_a_healthy_gpu_gives_every_reading_in_base_units(script: Script, poller: NvmlPoller) -> None:
    poller.roles = {4242: "trainer"}
    seen = values(poller.poll(100.0))
    at = f'{{gpu="{G0}"}}'
    assert seen[f"posttrain_gpu_utilization_ratio{at}"] == 0.9
    assert seen[f"posttrain_gpu_memory_total_bytes{at}"] == 80 * 2**30
    assert seen[f"posttrain_gpu_memory_reserve_ratio{at}"] == 0.9
    assert seen[f"posttrain_gpu_power_watts{at}"] == 650.5
    assert seen[f'posttrain_gpu_temperature_celsius{{gpu="{G0}",sensor="memory"}}'] == 72
    assert seen[f'posttrain_gpu_clock_hertz{{domain="sm",gpu="{G0}"}}'] == 1.98e9
    assert seen[f'posttrain_gpu_ecc_errors_total{{gpu="{G0}",lifetime="volatile",type="uncorrected"}}'] == 3
    assert seen[f'posttrain_gpu_nvlink_bytes_total{{direction="transmit",gpu="{G0}"}}'] == 5e9 * 1024
    assert seen[f'posttrain_gpu_process_memory_bytes{{gpu="{G0}",pid="4242",role="trainer"}}'] == 4 * 2**30
    assert seen["posttrain_watchdog_nvml_up"] == 1


def test_every_reading_is_in_the_vocabulary_with_its_labels(script: Script, poller: NvmlPoller) -> None:
    script("gpus 2\nmig 1\nxid 0 79\n")
    for metric in (m for row in poller.poll(1.0).rows for m in row.values):
        assert {k for k, _ in metric.labels} <= set(METRICS[metric.name].labels), metric


def test_a_call_the_driver_does_not_support_is_left_out_and_the_rest_goes_on(
    script: Script, poller: NvmlPoller
) -> None:
    script("gpus 1\nunsupported nvmlDeviceGetPowerUsage\n")
    seen = values(poller.poll(1.0))
    assert f'posttrain_gpu_power_watts{{gpu="{G0}"}}' not in seen
    assert seen[f'posttrain_gpu_last_collect_success{{gpu="{G0}"}}'] == 1
    script("gpus 1\n")
    assert f'posttrain_gpu_power_watts{{gpu="{G0}"}}' not in values(poller.poll(2.0)), "asked once, then left out"


def test_one_lost_gpu_ends_its_series_and_leaves_the_others(script: Script, poller: NvmlPoller) -> None:
    script("gpus 2\n")
    poller.poll(1.0)
    script("gpus 2\nlost 0\n")
    poll = poller.poll(2.0)
    assert [(e.kind, e.labels["gpu"]) for e in poll.events] == [("gpu_lost", G0)]
    assert Metric("posttrain_gpu_power_watts", {"gpu": G0}) in poll.gone
    assert values(poll)[f'posttrain_gpu_up{{gpu="{G0}"}}'] == 0
    assert values(poll)[f'posttrain_gpu_power_watts{{gpu="{G1}"}}'] == 650.5


def test_a_gpu_that_is_no_longer_enumerated_stays_down_is_said_once_and_shifts_nobody(
    script: Script, poller: NvmlPoller
) -> None:
    script("gpus 2\n")
    poller.poll(1.0)
    script("gpus 2\ngone 0\n")
    events = [e.kind for t in (2.0, 10.0, 20.0) for e in poller.poll(t).events]
    assert events == ["gpu_lost"]
    seen = values(poller.poll(30.0))
    assert seen[f'posttrain_gpu_up{{gpu="{G0}"}}'] == 0
    assert seen[f'posttrain_gpu_power_watts{{gpu="{G1}"}}'] == 650.5
    script("gpus 2\n")
    values(poller.poll(40.0))
    poller.close()
    assert values(poller.poll(50.0))[f'posttrain_gpu_up{{gpu="{G0}"}}'] == 1


def test_an_xid_is_counted_with_its_time_and_never_sticks_as_a_state(script: Script, poller: NvmlPoller) -> None:
    script("gpus 1\nxid 0 48\nxid 0 48\n")
    first = poller.poll(100.0)
    assert [e.labels["xid"] for e in first.events] == ["48", "48"]
    later = values(poller.poll(200.0))
    assert later[f'posttrain_gpu_xid_total{{gpu="{G0}",xid="48"}}'] == 2
    assert later[f'posttrain_gpu_xid_timestamp_seconds{{gpu="{G0}",xid="48"}}'] == 100.0


def test_mig_instances_are_series_of_their_own(script: Script, poller: NvmlPoller) -> None:
    script("gpus 1\nmig 0\n")
    seen = values(poller.poll(1.0))
    assert seen[f'posttrain_gpu_memory_total_bytes{{gpu="{G0}",mig="MIG-0"}}'] == 10 * 2**30
    assert seen[f'posttrain_gpu_mig_mode{{gpu="{G0}"}}'] == 1


def test_a_driver_that_hangs_costs_a_deadline_and_a_pause_but_not_the_daemon(
    script: Script, driver: Path, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(driver),
        "FAKE_NVML_STATE": str(tmp_path / "state"),
        "PYTHONPATH": str(ROOT / "watchdog"),
    }
    script("gpus 1\nslow nvmlDeviceGetMemoryInfo 3600000\n")
    hung = NvmlPoller(deadline=0.2, environment=environment)
    poll = hung.poll(10.0)
    assert values(poll) == {"posttrain_watchdog_nvml_up": 0.0}
    assert "did not answer" in poll.note
    assert hung.poll(10.5).rows == [], "asked for patience"
    hung.close()


def test_a_driver_that_crashes_at_start_is_a_metric_and_one_line(script: Script, poller: NvmlPoller) -> None:
    script("crash nvmlInitWithFlags\n")
    first, second = poller.poll(1.0), poller.poll(100.0)
    assert values(first) == values(second) == {"posttrain_watchdog_nvml_up": 0.0}
    assert first.note and not second.note


def test_no_driver_is_said_once_and_asked_again_rarely(tmp_path: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT / "watchdog")}
    if Path("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").exists():
        pytest.skip("this machine has a real driver")
    alone = NvmlPoller(deadline=20.0, environment=environment)
    poll = alone.poll(0.0)
    assert values(poll) == {"posttrain_watchdog_nvml_up": 0.0}
    assert "Shared Library Not Found" in poll.note
    assert alone.poll(300.0).rows == []
    alone.close()


def test_a_real_gpu_if_there_is_one() -> None:
    real = NvmlPoller(deadline=20.0)
    try:
        seen = values(real.poll(0.0))
        if not seen["posttrain_watchdog_nvml_up"]:
            pytest.skip("no GPU on this machine: only the scripted driver was tried")
        assert any(name.startswith("posttrain_gpu_memory_total_bytes") and v > 0 for name, v in seen.items())
    finally:
        real.close()
