"""docs/frameworks.md is what preflight knows."""

from __future__ import annotations

from conftest import ROOT

from posttrain_watchdog.preflight.framework import frameworks
from posttrain_watchdog.preflight.frameworks_page import page


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8") == page(), (
        "run: python -m posttrain_watchdog.preflight.frameworks_page > docs/frameworks.md"
    )


def test_every_framework_and_every_rename_is_on_it() -> None:
    text = page()
    for framework in frameworks():
        assert f"### {framework.title}\n" in text
        assert framework.builtin
        assert framework.own_sampler
        for rename in framework.renames:
            assert f"`{rename.old}`" in text
