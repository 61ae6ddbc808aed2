"""The words of alerts in another language: annotations by alert name that replace those of the rule files.

Promises: labels, expressions and names stay as they are, so that an alert is the same alert in every language; a
broken template is told with its file and alert. Pure but for `load`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from posttrain_watchdog.alerting.rules import Fault, Group, Rule, RuleError, RuleSet
from posttrain_watchdog.alerting.templates import Template, TemplateError, parse

Messages = Mapping[str, Mapping[str, str]]
"""Alert name -> annotation -> text."""


def load(path: Path) -> Messages:
    """Raises RuleError."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RuleError([Fault(str(path), 1, f"expected a file of messages: {error}")]) from None
    if not isinstance(data, dict) or not all(isinstance(each, dict) for each in data.values()):
        raise RuleError([Fault(str(path), 1, "expected alert names, and their annotations under each")])
    found = {str(name): {str(k): str(v) for k, v in each.items()} for name, each in data.items()}
    faults = []
    for name, notes in found.items():
        for key, text in notes.items():
            try:
                parse(text)
            except TemplateError as error:
                faults.append(Fault(str(path), 1, f"{key}: template: {error}", rule=name))
    if faults:
        raise RuleError(faults)
    return found


def worded(rules: RuleSet, messages: Messages) -> RuleSet:
    """The same rules with other words; alerts that have none keep theirs. Raises TemplateError."""
    return RuleSet(tuple(_group(group, messages) for group in rules.groups))


def _group(group: Group, messages: Messages) -> Group:
    return replace(group, rules=tuple(_rule(rule, messages) for rule in group.rules))


def _rule(rule: Rule, messages: Messages) -> Rule:
    words = messages.get(rule.name) if rule.alerting else None
    if not words:
        return rule
    templates: dict[str, Template] = {k: parse(v) for k, v in words.items() if not k.startswith("watchdog_")}
    return replace(
        rule,
        annotations={**rule.annotations, **{k: words[k] for k in templates}},
        annotation_templates={**rule.annotation_templates, **templates},
    )
