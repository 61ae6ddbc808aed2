"""What configurations say in words, for the checklist: modes, caps, versions, timeouts.

Promises: only what a file says, or what its framework does by default at the version at hand; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from posttrain_watchdog.preflight.check import read_all
from posttrain_watchdog.preflight.document import Document, spell_value
from posttrain_watchdog.preflight.view import View

_ANYWHERE: Mapping[str, tuple[str, ...]] = {
    "correction_interval": ("correction_interval", "correction_every", "is_correction_interval"),
    "correction_window": ("correction_window", "is_correction_window"),
}
"""the guide's own settings, by the last part of their key, in whatever file they stand"""


def facts(paths: Iterable[Path | str], versions: Mapping[str, str] | None = None) -> dict[str, str]:
    """Facts for `Measurements.add_facts` out of configurations, command lines and requirement files."""
    found: dict[str, str] = {}
    documents, views, known = read_all(paths, versions or {})
    for package, fact in (("vllm", "engine_version"), ("torch", "torch_version")):
        if package in known:
            found[fact] = known[package]
    for view in views:
        if view.framework.role == "trainer":
            found.update(_trainer(view))
    for view in views:
        if view.framework.role == "engine":
            mode = view.text("logprobs_mode")
            found["engine"] = view.framework.name
            found["logprobs_mode"] = "processed_logprobs" if mode == "sglang" else mode
    for document in documents:
        found.update(_anywhere(document))
    return {k: v for k, v in found.items() if v}


def _trainer(view: View) -> dict[str, str]:
    found: dict[str, str] = {}
    mode = view.text("is_mode")
    level, action = view.framework.modes.get(mode, ("", ""))
    if view.truth("is_enabled") is False:
        found["is_mode"] = "off"
    elif level:
        found["is_mode"] = f"{level}_{action}"
    if view.truth("is_enabled") is not False and view.number("is_cap") is not None:
        found["is_cap"] = f"{view.number('is_cap'):g}"
    logprobs = view.text("logprobs_mode")
    if logprobs and "logprobs_unused" not in view.settings:
        found["logprobs_mode"] = "processed_logprobs" if logprobs == "sglang" else logprobs
    timeout = view.get("timeout")
    if timeout is not None and timeout.given and view.number("timeout") is not None:
        found["collective_timeout"] = f"{view.number('timeout'):g}"
    return found


def _anywhere(document: Document) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, setting in document.settings.items():
        last = key.rpartition(".")[2]
        for fact, names in _ANYWHERE.items():
            if last in names:
                found[fact] = spell_value(setting.value)
    return found
