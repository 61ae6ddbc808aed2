"""Finds the files that travel with the program: rules, dashboards, documents, demo recordings.

In a wheel they lie in the package under `_shipped/`; in a checkout beside it, where people edit them.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The folder `name` ("rules", "grafana", "systemd", "docs").

    Raises FileNotFoundError, with both places tried, if the installation is incomplete.
    """
    installed = PACKAGE / "_shipped" / name
    if installed.is_dir():
        return installed
    checkout = PACKAGE.parent.parent / name
    if checkout.is_dir():
        return checkout
    raise FileNotFoundError(f"{name}: neither {installed} nor {checkout} is there; reinstall posttrain-watchdog")


def rule_files(folder: Path | None = None) -> list[Path]:
    """The rule files of a folder (default: the shipped pack), sorted; those for delivery are not rules."""
    here = folder or shipped("rules")
    return sorted(p for p in here.glob("*.y*ml") if not p.name.startswith(("inhibit", "messages")))


def demo_recording() -> Path:
    """The bundled recording of a run that goes wrong."""
    return PACKAGE / "recordings"
