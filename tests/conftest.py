"""Fixtures that every room's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


def shared_folder(name: str) -> Path:
    """A folder of the knowledge beside the checkout; skips the test where it is not there."""
    folder = SHARED / name
    if not folder.exists():
        pytest.skip(f"../shared/{name} is not beside this checkout")
    return folder


@pytest.fixture(scope="session")
def recordings() -> Path:
    return shared_folder("recordings")


@pytest.fixture(scope="session")
def cases() -> Path:
    return shared_folder("cases")


@pytest.fixture(scope="session")
def knowledge() -> Path:
    return shared_folder("knowledge")
