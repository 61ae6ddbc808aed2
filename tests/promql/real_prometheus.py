"""A real Prometheus over given samples, for one test session: loopback, its own folder, ended with the session."""

from __future__ import annotations

import math
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
from promql.remote_write import write

from posttrain_watchdog.model import Metric
from posttrain_watchdog.promql.values import Matrix, Scalar, String, Value, Vector

Series = tuple[Metric, list[float], list[float]]


def number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value == math.inf else "-Inf" if value == -math.inf else repr(value)


def openmetrics(series: Sequence[Series]) -> str:
    names = sorted({metric.name for metric, _, _ in series})
    lines = []
    for name in names:
        lines.append(f"# TYPE {name} gauge")
        for metric, times, values in series:
            if metric.name == name:
                labels = ",".join(f'{k}="{v}"' for k, v in metric.labels)
                lines += [f"{name}{{{labels}}} {number(v)} {t:.3f}" for t, v in zip(times, values, strict=True)]
    return "\n".join([*lines, "# EOF", ""])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Prometheus:
    """Asks the server and answers in the engine's types."""

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=30)

    def instant(self, expression: str, time: float) -> Value | None:
        """None where Prometheus reports an error."""
        return self._ask("/api/v1/query", {"query": expression, "time": repr(time)}, time)

    def range(self, expression: str, start: float, end: float, step: float) -> Value | None:
        parameters = {"query": expression, "start": repr(start), "end": repr(end), "step": repr(step)}
        return self._ask("/api/v1/query_range", parameters, start)

    def _ask(self, path: str, parameters: dict[str, str], time: float) -> Value | None:
        answer = self.client.post(path, data=parameters).json()
        if answer["status"] != "success":
            return None
        kind, result = answer["data"]["resultType"], answer["data"]["result"]
        if kind == "scalar":
            return Scalar(float(result[1]), time)
        if kind == "string":
            return String(result[1], time)
        if kind == "vector":
            return Vector(time, [(metric(s["metric"]), float(s["value"][1])) for s in result])
        return Matrix([(metric(s["metric"]), [(float(t), float(v)) for t, v in s["values"]]) for s in result])


def metric(labels: dict[str, str]) -> Metric:
    rest = {k: v for k, v in labels.items() if k != "__name__"}
    return Metric(labels.get("__name__", ""), rest)


@contextmanager
def serving(folder: Path, series: Sequence[Series], remote: bool = False) -> Iterator[Prometheus]:
    """Prometheus with these samples: in blocks on its disk, or with `remote` written into its head (the only way in
    for staleness markers)."""
    data = folder / "data"
    if not remote:
        source = folder / "samples.om"
        source.write_text(openmetrics(series))
        subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(source), str(data)],
            check=True,
            capture_output=True,
        )
    (folder / "prometheus.yml").write_text("{}")
    url = f"http://127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address={url.removeprefix('http://')}",
            "--web.enable-remote-write-receiver",
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "Server is ready" in line:
                break
        else:
            raise RuntimeError("Prometheus did not start: " + "".join(said[-5:]))
        if remote:
            write(url, series)
        prometheus = Prometheus(url)
        with prometheus.client:
            yield prometheus
    finally:
        process.terminate()
        process.communicate()


def installed() -> bool:
    return shutil.which("prometheus") is not None and shutil.which("promtool") is not None
