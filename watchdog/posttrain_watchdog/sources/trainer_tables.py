"""Which trainer's keys a record holds, where a tracker or an export wrote it: told by the keys alone.

Trackers put `train/` in front of some trainers' keys and leave others as they are. What no trainer's table knows may
still be one of the keys that many loggers share; the rest is kept under its own name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Mapping
from functools import cache

from posttrain_watchdog.sources import trainers
from posttrain_watchdog.sources.trainers.table import Table

GENERIC = "generic"
STEP_KEYS = ("train/global_step", "trainer/global_step", "training/global_step", "train/step", "global_step", "step")
_CLOCKS = frozenset({"_timestamp", "_runtime", "timestamp", "time", "wall_time"})
_IGNORED = frozenset({*STEP_KEYS, *_CLOCKS, "_step", "iteration", "current_steps", "rank"})
_ENOUGH = 3
"""Keys of one trainer that tell it."""


@cache
def tables() -> Mapping[str, Mapping[str, str]]:
    """Trainer -> its keys as trackers write them, and their short names."""
    found: dict[str, Mapping[str, str]] = {}
    for each in pkgutil.iter_modules(trainers.__path__):
        module = importlib.import_module(f"{trainers.__name__}.{each.name}")
        own = getattr(module, "KEYS", None)
        if own is None or each.name == GENERIC:
            continue
        more = {**own, **getattr(module, "ASYNC_KEYS", {})}
        for name, keys in ((each.name, own), (f"{each.name}_async", more)):
            if name == each.name or keys != own:
                found[name] = {**keys, **{f"train/{key}": short for key, short in keys.items()}}
    return found


def trainer_of(keys: Collection[str]) -> str:
    """The trainer of whose keys these hold most, three at least or half of them; empty where there is none."""
    held = frozenset(keys)
    # HF trainers share most keys: of equals, the one that the others are built on
    best = max(tables(), key=lambda name: (len(held & tables()[name].keys()), name == "trl"))
    count = len(held & tables()[best].keys())
    return best if count >= _ENOUGH or (count and 2 * count >= len(held - _IGNORED)) else ""


def table_of(trainer: str) -> Table:
    """The table of a trainer's keys, its signs and scales, and the shared keys of all loggers behind them."""
    shared: Mapping[str, str] = importlib.import_module(f"{trainers.__name__}.{GENERIC}").KEYS
    if not trainer:
        return Table(shared, ignored=_IGNORED)
    module = importlib.import_module(f"{trainers.__name__}.{trainer.removesuffix('_async')}")
    scales: Mapping[str, float] = getattr(module, "SCALES", {})
    keys = {**tables()[trainer], **{key: short for key, short in shared.items() if key not in tables()[trainer]}}
    return Table(keys, {**scales, **{f"train/{key}": scale for key, scale in scales.items()}}, _IGNORED)


def table_for(keys: Collection[str]) -> Table:
    """The table for records with these keys."""
    return table_of(trainer_of(keys))
