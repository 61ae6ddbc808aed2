"""What preflight says: one finding, and where it stands.

Promises: plain data with an order (worst first, then file and line). Never reads a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing, before the run starts."""

    check: str
    """a stable id, for instance `logprobs-mode`"""
    severity: Severity
    path: str
    line: int
    """1-based; 0 where the setting is not in the file (a default is at work)"""
    key: str
    """the setting as the file names it"""
    what: str
    """what is so"""
    why: str
    """why it matters, with the figure that it would cause"""
    fix: str = ""
    """a flag, or lines to remove (-) and to add (+)"""
    cause: str = ""
    """the cause of the vocabulary that the run would be diagnosed with, if any"""

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path

    @property
    def order(self) -> tuple[int, str, int, str]:
        return (SEVERITIES.index(self.severity), self.path, self.line, self.check)
