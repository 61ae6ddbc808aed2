"""Tells systemd that the daemon is ready, alive, stopping (sd_notify(3)); silent where systemd did not start it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


def notify(state: str, environment: Mapping[str, str] | None = None) -> bool:
    """Sends e.g. READY=1 or WATCHDOG=1. Returns whether there was somebody to tell; never raises."""
    address = (os.environ if environment is None else environment).get("NOTIFY_SOCKET", "")
    if not address or address[0] not in "/@":
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect("\0" + address[1:] if address[0] == "@" else address)
            channel.sendall(state.encode())
    except OSError:
        return False
    return True


def heartbeat_seconds(environment: Mapping[str, str] | None = None) -> float | None:
    """Half of the interval within which systemd wants a sign of life, None where it wants none."""
    text = (os.environ if environment is None else environment).get("WATCHDOG_USEC", "")
    return int(text) / 2e6 if text.isdigit() and int(text) > 0 else None
