"""Samples into a Prometheus' head through its remote-write receiver, staleness markers included.

The protobuf of prometheus.WriteRequest and snappy's literal blocks are simple enough to be written out here.
"""

from __future__ import annotations

import struct
import urllib.request
from collections.abc import Iterable, Sequence

from posttrain_watchdog.model import Metric

Series = tuple[Metric, Sequence[float], Sequence[float]]


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def timeseries(metric: Metric, times: Sequence[float], values: Sequence[float]) -> bytes:
    labels = [("__name__", metric.name), *metric.labels]
    body = b"".join(field(1, field(1, k.encode()) + field(2, v.encode())) for k, v in labels)
    for time, value in zip(times, values, strict=True):
        body += field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + varint(round(time * 1000)))
    return field(1, body)


def snappy(data: bytes) -> bytes:
    """Valid snappy without any compression."""
    parts = [varint(len(data))]
    for start in range(0, len(data), 65_536):
        piece = data[start : start + 65_536]
        parts.append(b"\xf4" + struct.pack("<H", len(piece) - 1) + piece)
    return b"".join(parts)


def write(url: str, series: Iterable[Series]) -> None:
    """`url`: of the server. Raises urllib.error.HTTPError where the server refuses."""
    waiting: list[bytes] = []

    def send() -> None:
        request = urllib.request.Request(
            f"{url}/api/v1/write",
            data=snappy(b"".join(waiting)),
            headers={
                "Content-Encoding": "snappy",
                "Content-Type": "application/x-protobuf",
                "X-Prometheus-Remote-Write-Version": "0.1.0",
            },
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
        waiting.clear()

    for metric, times, values in series:
        waiting.append(timeseries(metric, times, values))
        if len(waiting) == 500:
            send()
    if waiting:
        send()
