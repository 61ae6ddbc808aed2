"""Findings as text, JSON and SARIF 2.1.0 (for code scanning in CI).

Promises: pure functions of the findings; nothing is written here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from posttrain_watchdog.preflight.finding import SEVERITIES, Finding

_LEVELS = {"critical": "error", "warning": "warning", "info": "note"}


def as_text(findings: Sequence[Finding]) -> str:
    """For people: a block a finding, and a line that counts them."""
    blocks = []
    for finding in findings:
        lines = [f"{finding.where}: {finding.severity}: {finding.what} [{finding.check}]", f"    {finding.why}"]
        if finding.fix:
            first, *rest = finding.fix.splitlines()
            lines += [f"    fix: {first}", *(f"         {line}" for line in rest)]
        blocks.append("\n".join(lines))
    counts = ", ".join(f"{sum(f.severity == s for f in findings)} {s}" for s in SEVERITIES)
    return "\n".join([*blocks, counts if findings else "nothing to object to"]) + "\n"


def as_json(findings: Sequence[Finding]) -> str:
    rows = [
        {
            "check": f.check,
            "severity": f.severity,
            "path": f.path,
            "line": f.line,
            "key": f.key,
            "what": f.what,
            "why": f.why,
            "fix": f.fix,
            "cause": f.cause or None,
        }
        for f in findings
    ]
    return json.dumps({"findings": rows}, indent=1, ensure_ascii=False) + "\n"


def as_sarif(findings: Sequence[Finding], version: str) -> str:
    """SARIF 2.1.0: one rule a check, one result a finding, the fix in the message."""
    rules: dict[str, dict[str, Any]] = {}
    results = []
    for f in findings:
        rules.setdefault(f.check, {"id": f.check, "shortDescription": {"text": f.check.replace("-", " ")}})
        text = f"{f.what}. {f.why}" + (f"\nFix:\n{f.fix}" if f.fix else "")
        location = {
            "physicalLocation": {
                "artifactLocation": {"uri": f.path.replace("\\", "/")},
                "region": {"startLine": max(1, f.line)},
            }
        }
        results.append(
            {
                "ruleId": f.check,
                "level": _LEVELS[f.severity],
                "message": {"text": text},
                "locations": [location],
                "properties": {"key": f.key, "cause": f.cause or None},
            }
        )
    driver = {
        "name": "posttrain-watchdog",
        "version": version,
        "rules": list(rules.values()),
    }
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=1, ensure_ascii=False) + "\n"
