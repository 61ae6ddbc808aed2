"""Before the run and before going live: `check` reads configurations, `verify` goes through the checklist."""

from __future__ import annotations

from posttrain_watchdog.preflight.check import check, recognised
from posttrain_watchdog.preflight.facts import facts
from posttrain_watchdog.preflight.finding import Finding, Severity
from posttrain_watchdog.preflight.measurements import Measurements
from posttrain_watchdog.preflight.verify import Line, exit_code, verify

__all__ = ["Finding", "Line", "Measurements", "Severity", "check", "exit_code", "facts", "recognised", "verify"]
