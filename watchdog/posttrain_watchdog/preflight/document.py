"""What a file or a command line says, flattened: dotted keys, values, lines.

Promises: every value keeps the line that it came from. Never executes what it reads: YAML is composed, not constructed,
Python calls are read as literals, shell text is only split into words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Value = str | int | float | bool | None
Syntax = Literal["yaml", "json", "toml", "flags", "hydra", "python", "requirements"]

TRUE = frozenset({"true", "yes", "on", "1"})
FALSE = frozenset({"false", "no", "off", "0"})
NONE = frozenset({"null", "none", "~", ""})


@dataclass(frozen=True, slots=True)
class Setting:
    """One value as a file gives it."""

    key: str
    value: Value
    line: int = 0
    given: bool = True
    """False where a default of the framework is at work"""


@dataclass(slots=True)
class Document:
    """The settings of one file, or of one command inside a file."""

    path: str
    syntax: Syntax
    settings: dict[str, Setting] = field(default_factory=dict)
    program: str = ""
    """the command before its arguments, for command lines"""
    environment: dict[str, Setting] = field(default_factory=dict)
    line: int = 0
    dashes: bool = True
    """flags are spelt with dashes (vLLM) rather than underscores (argparse of the Hugging Face family)"""

    def add(self, key: str, value: Value, line: int) -> None:
        self.settings[key] = Setting(key, value, line)

    def spell(self, key: str, value: Value) -> str:
        """The setting in this document's own syntax."""
        text = spell_value(value, python=self.syntax == "python")
        if self.syntax == "flags":
            flag = "--" + (key.replace("_", "-") if self.dashes else key)
            return flag if value is True else f"{flag} {text}"
        if self.syntax == "hydra":
            return f"{key}={text}"
        if self.syntax == "toml":
            return f'{key} = "{text}"' if isinstance(value, str) else f"{key} = {text}"
        if self.syntax == "json":
            return f'"{key}": "{text}"' if isinstance(value, str) else f'"{key}": {text}'
        if self.syntax == "python":
            return f"{key}={value!r}"
        return f"{key}: {text}"

    def change(self, old: Setting, key: str, value: Value) -> str:
        """What to take out and what to put in instead, as a diff; one flag for another on a command line."""
        if self.syntax in ("flags", "hydra"):
            new = self.spell(key, value)
            return new if old.key == key else f"{new}   (instead of {self.spell(old.key, old.value)})"
        before, after = old.key, key
        if "." in before and before.rpartition(".")[0] == after.rpartition(".")[0]:
            before, after = before.rpartition(".")[2], after.rpartition(".")[2]
        return f"-{self.spell(before, old.value)}\n+{self.spell(after, value)}"


def spell_value(value: Value, *, python: bool = False) -> str:
    if value is None:
        return "None" if python else "null"
    if isinstance(value, bool):
        return str(value) if python else str(value).lower()
    return str(value)


def scalar(text: str) -> Value:
    """The value of a word of a command line."""
    word = text.strip()
    low = word.lower()
    if low in ("true", "false"):
        return low == "true"
    if low in ("null", "none", "~"):
        return None
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    if len(word) >= 2 and word[0] == word[-1] and word[0] in "'\"":
        return word[1:-1]
    return word


def number(value: Value) -> float | None:
    """The value as a number; None where it is none (an interpolation, a word, a truth value)."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except ValueError:
        return None


def truth(value: Value) -> bool | None:
    """The value as a truth value; None where it is none."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in TRUE:
        return True
    if text in FALSE or value is None:
        return False
    return None


def numbers(value: Value) -> list[float]:
    """The numbers in a value such as "0.5 5.0" or "0.5_5.0"."""
    return list(_numbers(str(value)))


def _numbers(text: str) -> Iterator[float]:
    for part in text.replace("_", " ").replace(",", " ").strip("[]() ").split():
        found = number(part)
        if found is not None:
            yield found
