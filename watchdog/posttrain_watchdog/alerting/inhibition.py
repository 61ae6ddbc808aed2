"""One root cause, its symptoms silent: Alertmanager's `inhibit_rules`, read from the file that Alertmanager reads.

Promises: the same answer as Alertmanager 0.25 (inhibit/inhibit.go): a target is muted while a source fires whose
`equal` labels agree (one that neither has agrees); an alert that matches both sides of a rule is not muted by another
that does. Never sends anything; pure but for `load`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from posttrain_watchdog.series.matchers import Matcher

_MATCHER = re.compile(r"""\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(=~|!~|!=|=)\s*(.*?)\s*\Z""", re.DOTALL)
_KEYS = {
    "source_match",
    "source_match_re",
    "source_matchers",
    "target_match",
    "target_match_re",
    "target_matchers",
    "equal",
}


class InhibitionError(ValueError):
    """Inhibition rules that cannot be used."""


@dataclass(frozen=True, slots=True)
class InhibitRule:
    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...]

    def is_source(self, labels: Mapping[str, str]) -> bool:
        return all(m.matches(labels.get(m.name, "")) for m in self.source)

    def is_target(self, labels: Mapping[str, str]) -> bool:
        return all(m.matches(labels.get(m.name, "")) for m in self.target)

    def agree(self, source: Mapping[str, str], target: Mapping[str, str]) -> bool:
        return all(source.get(name, "") == target.get(name, "") for name in self.equal)


class Inhibitor:
    """All rules of one file."""

    def __init__(self, rules: Sequence[InhibitRule] = ()) -> None:
        self.rules = tuple(rules)

    @classmethod
    def load(cls, path: Path) -> Inhibitor:
        """Reads a file with `inhibit_rules` (an alertmanager.yml will do). Raises InhibitionError."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InhibitionError(f"{path}: {error}") from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, origin: str = "<inhibit_rules>") -> Inhibitor:
        try:
            data = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError) as error:
            raise InhibitionError(f"{origin}: expected YAML: {error}") from None
        given = data.get("inhibit_rules") if isinstance(data, dict) else data
        if given is None:
            return cls()
        if not isinstance(given, list):
            raise InhibitionError(f"{origin}: expected a list under inhibit_rules")
        return cls([_rule(each, f"{origin}: inhibit rule {place}") for place, each in enumerate(given, 1)])

    def muted(self, firing: Sequence[Mapping[str, str]]) -> dict[int, int]:
        """Of the label sets of firing alerts: which (by place) are muted, and by which other."""
        found: dict[int, int] = {}
        for rule in self.rules:
            sources: dict[tuple[str, ...], list[int]] = {}
            for place, labels in enumerate(firing):
                if rule.is_source(labels):
                    sources.setdefault(tuple(labels.get(n, "") for n in rule.equal), []).append(place)
            if not sources:
                continue
            for place, labels in enumerate(firing):
                if place in found or not rule.is_target(labels):
                    continue
                both = rule.is_source(labels)
                for source in sources.get(tuple(labels.get(n, "") for n in rule.equal), ()):
                    if source != place and not (both and rule.is_target(firing[source])):
                        found[place] = source
                        break
        return found


def _rule(data: Any, where: str) -> InhibitRule:
    if not isinstance(data, dict) or (unknown := set(data) - _KEYS):
        raise InhibitionError(
            f"{where}: expected only {', '.join(sorted(_KEYS))}"
            + (f", got {sorted(unknown)[0]!r}" if isinstance(data, dict) else "")
        )
    equal = data.get("equal") or []
    if not isinstance(equal, list):
        raise InhibitionError(f"{where}: equal: expected a list of label names")
    return InhibitRule(_side(data, "source", where), _side(data, "target", where), tuple(str(e) for e in equal))


def _side(data: Mapping[str, Any], side: str, where: str) -> tuple[Matcher, ...]:
    found: list[Matcher] = []
    try:
        for name, value in (data.get(f"{side}_match") or {}).items():
            found.append(Matcher(str(name), "=", str(value)))
        for name, value in (data.get(f"{side}_match_re") or {}).items():
            found.append(Matcher(str(name), "=~", str(value)))
        for text in data.get(f"{side}_matchers") or []:
            found.extend(parse_matchers(str(text)))
    except (AttributeError, TypeError, ValueError) as error:
        raise InhibitionError(f"{where}: {side}: {error}") from None
    if not found:
        raise InhibitionError(f"{where}: expected {side}_matchers")
    return tuple(found)


def parse_matchers(text: str) -> Iterable[Matcher]:
    """`a="b"`, `a=~b`, or several in braces. Raises ValueError."""
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    # commas within quotes belong to the value
    for part in re.findall(r'(?:"(?:\\.|[^"\\])*"|[^,"])+', inner):
        if not part.strip():
            continue
        match = _MATCHER.match(part)
        if match is None:
            raise ValueError(f"expected NAME=VALUE, NAME!=VALUE, NAME=~REGEX or NAME!~REGEX, got {part.strip()!r}")
        name, operator, value = match.groups()
        if value.startswith('"'):
            if len(value) < 2 or not value.endswith('"'):
                raise ValueError(f"unclosed quote in {part.strip()!r}")
            value = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m.group(1), m.group(1)), value[1:-1])
        yield Matcher(name, operator, value)  # type: ignore[arg-type]
