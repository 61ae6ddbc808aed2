"""The shape of what is known of one framework or engine, and how it is found.

Promises: knowledge is data; the one function a framework may add (`adjust`) only rewrites resolved settings.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from posttrain_watchdog.preflight.document import Document, Setting, Value

Role = Literal["trainer", "engine"]
Settings = dict[str, Setting]


@dataclass(frozen=True, slots=True)
class Rename:
    """A key that got another name, or went away."""

    old: str
    new: str
    """empty: gone without a successor"""
    since: str
    """version from which the new name is known"""
    removed: bool = False
    """True: the old name no longer has an effect (or raises)"""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Framework:
    """One framework: where it keeps what the judges ask for, its defaults by version, what it corrects by itself."""

    name: str
    title: str
    package: str
    read: str
    """the version whose source was read; assumed where the user's is not known"""
    role: Role
    programs: tuple[str, ...]
    """regular expressions on a command line, or the name of a configuration class"""
    markers: tuple[str, ...]
    """keys that tell the framework: one is enough"""
    keys: Mapping[str, tuple[str, ...]]
    """canonical setting -> the framework's keys, the first that is set wins"""
    defaults: Mapping[str, tuple[tuple[str, Value], ...]]
    """canonical setting -> (since version, value), oldest first"""
    modes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """the framework's correction mode -> (level token|sequence|none, action truncate|mask)"""
    renames: tuple[Rename, ...] = ()
    known_prefixes: tuple[str, ...] = ()
    """key prefixes under which an unknown key is a spelling mistake"""
    known_keys: tuple[str, ...] = ()
    dashes: bool = False
    """its flags are spelt with dashes"""
    engine: str = "vLLM"
    scales_by_temperature: bool = True
    """the trainer divides its logits by the temperature"""
    truncates: bool = False
    """the trainer applies top-k/top-p to its logits"""
    sequence_mean: Literal["product", "geometric"] = "product"
    needs_correction: bool = True
    """there is an engine whose numbers differ from the trainer's"""
    adjust: Callable[[Settings, Document, Mapping[str, str]], None] | None = None
    builtin: str = ""
    """what it corrects by itself, for docs/frameworks.md"""
    own_sampler: str = ""
    """what the user has to bring, for docs/frameworks.md"""
    logged: str = ""
    """what it logs of the mismatch, and what that figure really is, for docs/frameworks.md"""


@functools.cache
def frameworks() -> tuple[Framework, ...]:
    """All that is known, by the files of frameworks/."""
    from posttrain_watchdog.preflight import frameworks as folder

    names = sorted(m.name for m in pkgutil.iter_modules(folder.__path__))
    found = [importlib.import_module(f"{folder.__name__}.{name}").FRAMEWORK for name in names]
    return tuple(f for f in found if isinstance(f, Framework))


def version_key(version: str) -> tuple[int, ...]:
    """A version as numbers: "0.10.1.1" -> (0, 10, 1, 1); what follows the numbers is left out."""
    parts: list[int] = []
    for part in version.split("+", maxsplit=1)[0].split("."):
        digits = ""
        for char in part:
            if not char.isdigit():
                break
            digits += char
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts)


def at_least(version: str, wanted: str) -> bool:
    a, b = version_key(version), version_key(wanted)
    width = max(len(a), len(b))
    return a + (0,) * (width - len(a)) >= b + (0,) * (width - len(b))


def default_at(table: tuple[tuple[str, Value], ...], version: str) -> Value:
    """The default in force at a version: the newest entry that is not newer; the oldest for older versions."""
    value: Value = table[0][1]
    for since, candidate in table:
        if at_least(version, since):
            value = candidate
    return value
