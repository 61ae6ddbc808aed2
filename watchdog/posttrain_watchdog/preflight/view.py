"""A document in the judges' terms: which framework, which version, which canonical settings.

Promises: what the user gave wins over defaults; interpolations resolve inside the document or count as unknown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from posttrain_watchdog.preflight.document import Document, Setting, Value, number, truth
from posttrain_watchdog.preflight.finding import Finding, Severity
from posttrain_watchdog.preflight.framework import Framework, Settings, at_least, default_at, frameworks

_REFERENCE = re.compile(r"^\$\{([\w.]+)\}$")
_MOE = re.compile(
    r"moe|mixtral|-a\d+b|\d+x\d+b|deepseek-?(?:v[234]|r1(?!-distill))|gpt-?oss|glm-4\.5|minimax-m|qwen3-next", re.I
)


@dataclass(slots=True)
class View:
    """One document seen as a trainer or an engine."""

    document: Document
    framework: Framework
    settings: Settings
    versions: Mapping[str, str]

    @property
    def version(self) -> str:
        return self.versions.get(self.framework.package, self.framework.read)

    @property
    def version_words(self) -> str:
        known = self.framework.package in self.versions
        return f"{self.framework.title} {self.version}" if known else f"{self.framework.title} (as of {self.version})"

    def get(self, name: str) -> Setting | None:
        return self.settings.get(name)

    def number(self, name: str) -> float | None:
        found = self.settings.get(name)
        return number(found.value) if found is not None else None

    def truth(self, name: str) -> bool | None:
        found = self.settings.get(name)
        return truth(found.value) if found is not None else None

    def text(self, name: str) -> str:
        found = self.settings.get(name)
        return "" if found is None or found.value is None else str(found.value)

    def key(self, name: str) -> str:
        """How this framework spells a setting, whether or not it is given."""
        found = self.settings.get(name)
        if found is not None and found.key:
            return found.key
        return self.framework.keys.get(name, (name,))[0]

    @property
    def needs_correction(self) -> bool:
        return self.framework.needs_correction and "needs_correction" not in self.settings

    @property
    def mixture_of_experts(self) -> bool:
        return bool(_MOE.search(self.text("model")))

    def fix(self, name: str, value: Value) -> str:
        """The setting as it should be: a flag, or the line to take out and the one to put in."""
        key = self.framework.keys.get(name, (name,))[0]
        found = self.settings.get(name)
        if found is not None and found.given and found.key:
            key = found.key
        if found is None or not found.given or found.key not in self.document.settings:
            wanted = self.document.spell(key, value)
            return wanted if self.document.syntax in ("flags", "hydra") else f"+{wanted}"
        return self.document.change(self.document.settings[found.key], key, value)

    def finding(
        self, check: str, severity: Severity, name: str, what: str, why: str, *, fix: str = "", cause: str = ""
    ) -> Finding:
        found = self.settings.get(name)
        line = found.line if found is not None and found.line else self.document.line
        return Finding(check, severity, self.document.path, line, self.key(name), what, why, fix, cause)


def view(document: Document, versions: Mapping[str, str]) -> View | None:
    """The document as the framework that it belongs to; None if none claims it."""
    framework = recognise(document)
    if framework is None:
        return None
    document.dashes = framework.dashes
    settings: Settings = {}
    version = versions.get(framework.package, framework.read)
    for name, keys in framework.keys.items():
        for key in keys:
            given = document.settings.get(key)
            if given is not None:
                settings[name] = _resolved(given, document)
                break
        else:
            if name in framework.defaults:
                settings[name] = Setting(keys[0], default_at(framework.defaults[name], version), given=False)
    for name, table in framework.defaults.items():
        settings.setdefault(name, Setting("", default_at(table, version), given=False))
    if framework.adjust is not None:
        framework.adjust(settings, document, versions)
    for name in [n for n, s in settings.items() if isinstance(s.value, str) and "$" in s.value]:
        del settings[name]
    return View(document, framework, settings, versions)


def recognise(document: Document) -> Framework | None:
    """The framework whose program runs, or else the one whose marker keys are most."""
    if document.syntax == "requirements":
        return None
    if document.program:
        for framework in frameworks():
            if framework.role == "engine" and _runs(framework, document):
                return framework
    best: tuple[int, Framework] | None = None
    for framework in frameworks():
        score = sum(m in document.settings for m in framework.markers)
        score += 3 * _runs(framework, document)
        if score and (best is None or score > best[0]):
            best = (score, framework)
    return best[1] if best else None


def _runs(framework: Framework, document: Document) -> bool:
    return bool(document.program) and any(re.search(p, document.program) for p in framework.programs)


def _resolved(setting: Setting, document: Document) -> Setting:
    seen = 0
    value = setting.value
    while isinstance(value, str) and (found := _REFERENCE.match(value)) and seen < 5:
        target = document.settings.get(found[1])
        if target is None:
            break
        value, seen = target.value, seen + 1
    return Setting(setting.key, value, setting.line, setting.given)


def renamed(found: View) -> list[Finding]:
    """Keys that have another name in the version at hand, keys that it does not know yet, and spelling mistakes."""
    findings: list[Finding] = []
    document, framework = found.document, found.framework
    known_version = framework.package in found.versions
    for rename in framework.renames:
        old, new = document.settings.get(rename.old), document.settings.get(rename.new)
        if old is not None and at_least(found.version, rename.since):
            note = f" ({rename.note})" if rename.note else ""
            effect = "has no effect or raises" if rename.removed else "is deprecated"
            findings.append(
                Finding(
                    "renamed-key",
                    "critical" if rename.removed else "warning",
                    document.path,
                    old.line,
                    old.key,
                    f"`{rename.old}` {effect} in {found.version_words}; it is `{rename.new}` since "
                    f"{rename.since}{note}",
                    "A setting that does not arrive leaves the default at work: the correction runs with another "
                    "cap or not at all.",
                    document.change(old, rename.new, old.value),
                )
            )
        elif new is not None and known_version and not at_least(found.version, rename.since):
            findings.append(
                Finding(
                    "unknown-key",
                    "critical",
                    document.path,
                    new.line,
                    new.key,
                    f"`{rename.new}` is not known in {found.version_words}; it is `{rename.old}` before {rename.since}",
                    "The setting does not arrive.",
                    document.change(new, rename.old, new.value),
                )
            )
    old_names = {r.old for r in framework.renames}
    for key, given in document.settings.items():
        if (
            key.startswith(framework.known_prefixes or ("\0",))
            and key not in framework.known_keys
            and key not in old_names
        ):
            near = difflib.get_close_matches(key, framework.known_keys, 1)
            hint = f"; the nearest known is `{near[0]}`" if near else ""
            findings.append(
                Finding(
                    "unknown-key",
                    "warning",
                    document.path,
                    given.line,
                    key,
                    f"`{key}` is not known in {found.version_words}{hint}",
                    "A setting that is misspelt leaves the default at work.",
                    document.change(given, near[0], given.value) if near else "",
                )
            )
    return findings
