"""What is written about the program is true of it."""

from __future__ import annotations

import os
import re

from conftest import ROOT

from posttrain_watchdog.vocabulary import markdown


def test_the_page_of_metrics_is_current() -> None:
    page = ROOT / "docs" / "metrics.md"
    if os.environ.get("WATCHDOG_GOLDEN") == "rewrite":
        page.write_text(markdown.page(), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == markdown.page(), "run `make golden`"


def test_every_document_that_the_readme_links_to_is_there() -> None:
    linked = re.findall(r"\]\(((?:docs|grafana|systemd)/[^)#]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(linked) > 5
    assert [name for name in linked if not (ROOT / name).exists()] == []
