"""`diagnose`: the token statistics and the named cause of dumps alone, without logs, rules or series."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posttrain_watchdog.config import RunConfig
from posttrain_watchdog.feed import open_feeds
from posttrain_watchdog.model import Diagnosis, Row, TokenBatch


class NoTokens(ValueError):
    """None of the files has tokens; the text says what each is, a line a file."""


@dataclass(slots=True)
class TokenReport:
    """What the dumps show."""

    diagnoses: list[Diagnosis]
    sequences: int
    tokens: int
    steps: tuple[int, int] | None
    last: dict[str, float] = field(default_factory=dict)
    unread: list[tuple[str, str]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "steps": list(self.steps) if self.steps else None,
            "sequences": self.sequences,
            "tokens": self.tokens,
            "metrics": self.last,
            "diagnoses": [
                {
                    "cause": d.cause,
                    "confidence": d.confidence,
                    "first_step": d.first_step,
                    "tokens": d.tokens,
                    "summary": d.summary,
                    "evidence": dict(d.evidence),
                    "first_checks": list(d.first_checks),
                }
                for d in self.diagnoses
            ],
            "unread": [{"path": p, "reason": r} for p, r in self.unread],
        }

    def text(self) -> str:
        """For a terminal."""
        span = f"steps {self.steps[0]} to {self.steps[1]}, " if self.steps else ""
        lines = [f"{span}{self.sequences:,} sequences, {self.tokens:,} tokens"]
        for d in self.diagnoses:
            since = f" from step {d.first_step}" if d.first_step is not None else ""
            lines += [f"{d.cause} (confidence {d.confidence:.2f}{since})", f"  {d.summary}"]
            lines += [f"  {n}. {check}" for n, check in enumerate(d.first_checks, 1)]
        lines += ["last step"] + [f"  {name} {value:.6g}" for name, value in self.last.items()]
        lines += [f"not read: {path}: {reason}" for path, reason in self.unread]
        return "\n".join(lines) + "\n"


def diagnose(paths: Iterable[Path]) -> TokenReport:
    """Reads every dump under `paths` as one run. Raises NoTokens."""
    from posttrain_watchdog.consistency.monitor import Monitor

    monitor = Monitor()
    feeds, unread = open_feeds(paths, RunConfig())
    sequences = tokens = 0
    steps: list[int] = []
    for feed in feeds:
        if not feed.heavy:
            unread.append((feed.path, f"is a {feed.kind}, not a token dump"))
            continue
        try:
            for item in feed:
                if isinstance(item, TokenBatch):
                    monitor.observe(item)
                    sequences, tokens = sequences + item.sequences, tokens + item.tokens
                    steps += [int(item.step.min()), int(item.step.max())]
        except (OSError, ValueError) as error:
            unread.append((feed.path, str(error)))
    if not sequences:
        raise NoTokens("\n".join(f"{path}: {reason}" for path, reason in unread) or "no file was given")
    monitor.flush()
    rows: list[Row] = monitor.rows()
    last = {repr(m): v for m, v in rows[-1].values.items()} if rows else {}
    known = [s for s in steps if s >= 0]
    span = (min(known), max(known)) if known else None
    return TokenReport(monitor.diagnoses(), sequences, tokens, span, last, unread)
