"""The page docs/metrics.md, made from the vocabulary."""

from __future__ import annotations

from collections.abc import Iterable

from posttrain_watchdog.vocabulary import CAUSES, EVENTS, METRICS, WINDOWS

_CHAPTERS = (
    ("Logged by the trainer", "posttrain_trainer_"),
    ("The engine", "posttrain_engine_"),
    ("GPUs", "posttrain_gpu_"),
    ("This host", "posttrain_host_"),
    ("The daemon about itself", "posttrain_watchdog_"),
    ("Recomputed from tokens, and the run", "posttrain_"),
)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(names: Iterable[str]) -> list[str]:
    rows = ["| metric | type | unit | labels | what |", "|---|---|---|---|---|"]
    for name in names:
        spec = METRICS[name]
        labels = ", ".join(spec.labels)
        window = " (windows)" if spec.windowed else ""
        rows.append(f"| `{name}` | {spec.kind}{window} | {spec.unit} | {labels} | {_cell(spec.help)} |")
    return rows


def page() -> str:
    """The whole page, ending in a newline."""
    lines = [
        "# Metrics",
        "",
        "Generated from `posttrain_watchdog/vocabulary`; `make golden` writes it anew. Every series of a run carries",
        "the label `run`. Metrics marked (windows) are also kept over the last "
        + " and ".join(str(w) for w in WINDOWS)
        + " steps as",
        '`NAME_window_min`, `NAME_window_max` and `NAME_window_mean` with the label `window`, e.g. `{window="20"}`, so',
        "that what happened between two scrapes is not lost and rules can count steps rather than minutes.",
        "",
    ]
    left = list(METRICS)
    for title, prefix in _CHAPTERS:
        mine = [name for name in left if name.startswith(prefix)]
        left = [name for name in left if not name.startswith(prefix)]
        if mine:
            lines += [f"## {title}", "", *_table(mine), ""]
    lines += ["## Causes", "", "| cause | meaning |", "|---|---|"]
    lines += [f"| `{cause}` | {_cell(meaning)} |" for cause, meaning in CAUSES.items()]
    lines += ["", "## Kinds of event", "", "| kind | meaning |", "|---|---|"]
    lines += [f"| `{kind}` | {_cell(meaning)} |" for kind, meaning in EVENTS.items()]
    return "\n".join(lines) + "\n"
