"""Before the run and before going live: `check` reads configurations, `verify` goes through the checklist."""

from __future__ import annotations

from posttrain_watchdog.preflight.check import check, recognised
from posttrain_watchdog.preflight.finding import Finding, Severity

__all__ = ["Finding", "Severity", "check", "recognised"]
