"""docs/frameworks.md, made from what preflight knows.

Promises: a pure function of the tables in frameworks/; a test holds the page in docs/ equal to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from posttrain_watchdog.preflight.document import Value
from posttrain_watchdog.preflight.framework import Framework, frameworks

_HEAD = """# Frameworks and engines

Made from what `posttrain-watchdog check` knows, by
`python -m posttrain_watchdog.preflight.frameworks_page > docs/frameworks.md`. Keys, defaults and behaviour were read
from the sources of the version named; where yours differs, pin it in a requirements file beside the configuration,
and `check` takes it from there.
"""


def page() -> str:
    """The whole page as Markdown."""
    trainers = [f for f in frameworks() if f.role == "trainer"]
    engines = [f for f in frameworks() if f.role == "engine"]
    parts = [
        _HEAD,
        "## What each framework corrects by itself, and what it needs from you\n",
        _table(
            ("framework", "read at", "corrects by itself", "needs from you"),
            [(f.title, f.read, f.builtin, f.own_sampler) for f in trainers],
        ),
        "## The engine's logprobs against the trainer's\n",
        _table(
            (
                "framework",
                "engine",
                "logprobs mode without a setting",
                "trainer divides by temperature",
                "trainer applies top-k/top-p",
            ),
            [
                (f.title, f.engine, _history(f, "logprobs_mode"), _yes(f.scales_by_temperature), _yes(f.truncates))
                for f in trainers
            ],
        ),
        "## What it logs of the mismatch\n",
        _table(("framework", "figure"), [(f.title, f.logged) for f in trainers]),
        "## Engines\n",
        _table(
            ("engine", "read at", "logprobs without a setting", "needs from you", "its own metrics"),
            [(f.title, f.read, _history(f, "logprobs_mode"), f.own_sampler, f.logged) for f in engines],
        ),
        "## Where the settings are\n",
        *(_keys(f) for f in (*trainers, *engines)),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _keys(framework: Framework) -> str:
    rows = [
        (name.replace("_", " "), " or ".join(f"`{k}`" for k in keys), _history(framework, name))
        for name, keys in framework.keys.items()
    ]
    text = f"### {framework.title}\n\n" + _table(("setting", "key", "default"), rows)
    if framework.modes:
        text += "\nCorrection modes: " + ", ".join(
            f"`{mode}` ({level} level, {action})" for mode, (level, action) in framework.modes.items() if mode != "True"
        )
        text += ".\n"
    if framework.renames:
        renames = [
            (
                f"`{r.old}`",
                f"`{r.new}`" + (f" ({r.note})" if r.note else ""),
                "always" if r.since == "0" else r.since,
                "no longer read" if r.removed else "deprecated alias",
            )
            for r in framework.renames
        ]
        text += "\n" + _table(("old key", "new key", "since", "old key now"), renames)
    return text


def _history(framework: Framework, name: str) -> str:
    table = framework.defaults.get(name)
    if table is None:
        return "–"
    return ", ".join(_value(v) if since == "0" else f"{_value(v)} since {since}" for since, v in table)


def _value(value: Value) -> str:
    if value == "sglang":
        return "after temperature, before top-k/top-p"
    return "none" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
