"""A receiver that does not answer is left alone for a while, so that it costs nobody else anything.

Promises: pure; time is an argument. After each failure in a row the pause doubles, from 5 s to 5 min; when it is
over, one attempt decides (half open).
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST = 5.0
LONGEST = 300.0


@dataclass(slots=True)
class Circuit:
    """Whether one receiver may be asked."""

    failures: int = 0
    """in a row"""
    open_until: float = 0.0

    def closed(self, now: float) -> bool:
        return now >= self.open_until

    @property
    def at_once(self) -> int:
        """Messages to try now: one while it is in doubt."""
        return 20 if self.failures == 0 else 1

    def succeeded(self) -> None:
        self.failures, self.open_until = 0, 0.0

    def failed(self, now: float, retry_after: float = 0.0) -> None:
        self.failures += 1
        self.open_until = now + max(min(FIRST * 2.0 ** min(self.failures - 1, 16), LONGEST), retry_after)
