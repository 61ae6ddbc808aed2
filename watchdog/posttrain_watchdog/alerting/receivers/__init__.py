"""Direct receivers: one file a kind; the file's name is the kind.

Promises: a wrong option is refused with the receiver's name; secrets come from files or the environment only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import httpx

from posttrain_watchdog.alerting.transport import Receiver, ReceiverError, ReceiverSettings
from posttrain_watchdog.config import ReceiverConfig

COMMON = frozenset({"group_by", "group_wait", "group_interval", "repeat_interval", "send_resolved", "timeout"})
"""Options of every receiver (grouping.py, transport.py)."""


def kinds() -> list[str]:
    return sorted(module.name for module in iter_modules(__path__))


def build(
    config: ReceiverConfig,
    *,
    language: str = "en",
    environ: Mapping[str, str] = os.environ,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Receiver:
    """The receiver that a configuration describes. Raises ReceiverError."""
    if config.kind not in kinds():
        raise ReceiverError(
            f"receiver {config.name!r}: kind: expected one of {', '.join(kinds())}, got {config.kind!r}"
        )
    module = import_module(f"{__name__}.{config.kind}")
    secrets: dict[str, str] = {}
    for name in module.SECRETS:
        if name in config.options:
            raise ReceiverError(
                f"receiver {config.name!r}: {name} is a secret: name a file in {name}_file or a variable in {name}_env"
            )
        value = read_secret(config.name, name, config.options, environ)
        if value:
            secrets[name] = value
    own = {f"{name}_{where}" for name in module.SECRETS for where in ("file", "env")}
    unknown = sorted(set(config.options) - module.OPTIONS - COMMON - own)
    if unknown:
        known = ", ".join(sorted(module.OPTIONS | COMMON | own))
        raise ReceiverError(f"receiver {config.name!r}: no such option {unknown[0]!r}, expected one of {known}")
    url = config.url or read_secret(
        config.name, "url", {"url_file": config.url_file, "url_env": config.url_env}, environ
    )
    if config.url and module.URL_IS_SECRET:
        raise ReceiverError(f"receiver {config.name!r}: its url is a secret: use url_file or url_env")
    try:
        timeout = float(config.options.get("timeout", 10.0))
    except (TypeError, ValueError):
        raise ReceiverError(f"receiver {config.name!r}: timeout: expected seconds") from None
    made: Receiver = module.build(
        ReceiverSettings(config.name, url, config.options, secrets, language, timeout, transport)
    )
    return made


def read_secret(receiver: str, name: str, options: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """From the file or the variable that the options name; empty where they name none. Raises ReceiverError."""
    path, variable = options.get(f"{name}_file"), options.get(f"{name}_env")
    if path:
        try:
            return Path(str(path)).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "is not text"
            raise ReceiverError(f"receiver {receiver!r}: {name}_file {str(path)!r}: {reason}") from None
    if variable:
        if str(variable) not in environ:
            raise ReceiverError(f"receiver {receiver!r}: {name}_env: {variable!r} is not in the environment")
        return environ[str(variable)].strip()
    return ""
