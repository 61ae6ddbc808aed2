"""Talking to systemd."""

from __future__ import annotations

import socket
from pathlib import Path

from posttrain_watchdog.notify import heartbeat_seconds, notify


def test_ready_reaches_the_socket_that_systemd_named(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        assert notify("READY=1", {"NOTIFY_SOCKET": address})
        assert systemd.recv(64) == b"READY=1"


def test_nothing_happens_where_systemd_did_not_start_us_or_is_gone(tmp_path: Path) -> None:
    assert not notify("READY=1", {})
    assert not notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "gone")})


def test_the_heart_beats_twice_as_fast_as_systemd_asks() -> None:
    assert heartbeat_seconds({"WATCHDOG_USEC": "60000000"}) == 30.0
    assert heartbeat_seconds({"WATCHDOG_USEC": "no"}) is None
