"""Which rules are in force: the files that the configuration names, in the language that it asks for.

Promises: a set is loaded whole or not at all, the translation included. Reads files; evaluates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from posttrain_watchdog.alerting.rules import Fault, Group, Rule, RuleError, RuleSet
from posttrain_watchdog.alerting.templates import TemplateError, parse
from posttrain_watchdog.config import Config, ConfigError
from posttrain_watchdog.feed import matching
from posttrain_watchdog.shipped import rule_files, shipped

_EXTENSION = "watchdog_"


def rule_paths(config: Config) -> list[Path]:
    """The rule files that the configuration names, or the shipped pack. Raises ConfigError where a name fits none."""
    if not config.rules:
        return rule_files()
    found: list[Path] = []
    for pattern in config.rules:
        path = Path(pattern)
        members = rule_files(path) if path.is_dir() else matching(pattern)
        if not members:
            raise ConfigError(f"rules: no file matches {pattern!r}")
        found += members
    return found


def load(paths: list[Path], language: str = "en") -> RuleSet:
    """The rules of these files. Raises RuleError."""
    rules = RuleSet.load(paths)
    return rules if language == "en" else translated(rules, shipped("rules") / "messages" / f"{language}.yml")


def inhibit_rules() -> Path:
    """The shipped rules by which a cause silences its symptoms; Alertmanager takes the same file."""
    return shipped("rules") / "alertmanager" / "inhibit.yml"


def translated(rules: RuleSet, path: Path) -> RuleSet:
    """The rules with the annotations that `path` has for their names; others keep theirs. Raises RuleError."""
    try:
        messages = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RuleError([Fault(str(path), 1, f"expected messages by alert name: {error}")]) from None
    if not isinstance(messages, dict):
        raise RuleError([Fault(str(path), 1, "expected messages by alert name")])
    return RuleSet(tuple(_group(group, messages, path) for group in rules.groups))


def _group(group: Group, messages: Mapping[str, Any], path: Path) -> Group:
    return replace(group, rules=tuple(_rule(rule, messages.get(rule.name), path) for rule in group.rules))


def _rule(rule: Rule, words: Any, path: Path) -> Rule:
    if not rule.alerting or not isinstance(words, dict):
        return rule
    kept = {k: v for k, v in rule.annotations.items() if k.startswith(_EXTENSION)}
    try:
        templates = {name: parse(str(text)) for name, text in words.items()}
    except TemplateError as error:
        raise RuleError([Fault(str(path), 1, str(error), rule=rule.name)]) from None
    notes = {name: str(text) for name, text in words.items()}
    return replace(
        rule,
        annotations={**rule.annotations, **notes, **kept},
        annotation_templates={**rule.annotation_templates, **templates},
    )
