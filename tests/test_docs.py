"""What is written about the program is true of it."""

from __future__ import annotations

import ast
import os
import re
import typing
from collections.abc import Iterator

from conftest import ROOT
from pydantic import BaseModel

from posttrain_watchdog.alerting.rules import RuleSet
from posttrain_watchdog.config import Config
from posttrain_watchdog.promql.inspect import names
from posttrain_watchdog.shipped import rule_files
from posttrain_watchdog.vocabulary import METRICS, markdown


def test_the_page_of_metrics_is_current() -> None:
    page = ROOT / "docs" / "metrics.md"
    if os.environ.get("WATCHDOG_GOLDEN") == "rewrite":
        page.write_text(markdown.page(), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == markdown.page(), "run `make golden`"


def test_every_document_that_the_readme_links_to_is_there() -> None:
    linked = re.findall(r"\]\(((?:docs|grafana|systemd)/[^)#]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(linked) > 5
    assert [name for name in linked if not (ROOT / name).exists()] == []


def test_every_metric_that_a_rule_waits_for_is_told_by_some_module() -> None:
    package = ROOT / "watchdog" / "posttrain_watchdog"
    code = "\n".join(p.read_text(encoding="utf-8") for p in package.rglob("*.py") if "vocabulary" not in p.parts)
    asked = {
        name.removesuffix(part)
        for _, rule in RuleSet.load(rule_files()).rules()
        for name in names(rule.expr)
        for part in ("_window_min", "_window_max", "_window_mean", "_bucket", "_sum", "_count", "")
        if name.removesuffix(part) in METRICS
    }
    kept = re.compile(r"^posttrain_(?:watchdog_|trainer_|engine_|gpu_|host_|run_|process_)?")
    composed = {"posttrain_engine_sampling_temperature_over_reported_error"}  # the estimate's name and "_error"
    assert len(asked) > 60
    assert [n for n in sorted(asked - composed) if not re.search(rf"[\"'_]{kept.sub('', n)}\b", code)] == []


def _keys(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every setting as the page writes it: `runs[].engines[].url`."""
    for name, info in model.model_fields.items():
        inner = [a for a in typing.get_args(info.annotation) if isinstance(a, type) and issubclass(a, BaseModel)]
        if inner:
            yield from _keys(inner[0], f"{before}{name}[].")
        elif isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from _keys(info.annotation, f"{before}{name}.")
        else:
            yield before + name


def test_the_page_of_settings_names_those_that_there_are_and_no_others() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    told: list[str] = []
    for row in page.split("| key |")[1].split("\n\n")[0].splitlines()[2:]:
        for key in re.findall(r"`([^`]+)`", row.split("|")[1]):
            told.append(told[-1].rpartition(".")[0] + key if key.startswith(".") else key)
    assert sorted(told) == sorted(_keys(Config))


def test_every_setting_is_read_by_some_module() -> None:
    package = ROOT / "watchdog" / "posttrain_watchdog"
    read = {
        node.attr
        for path in package.rglob("*.py")
        if path.name != "config.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }
    assert [key for key in _keys(Config) if key.rpartition(".")[2] not in read] == []
