"""The checklist as text, JSON, JUnit XML and HTML.

Promises: pure functions of the lines; everything that comes from a run is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from xml.sax.saxutils import quoteattr

from posttrain_watchdog.preflight.verify import Line

_MARKS = {"pass": "ok", "fail": "FAIL", "unknown": "?"}
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem;color:#1c2430;background:#fff}
table{border-collapse:collapse}
td,th{border-bottom:1px solid #d5dbe3;padding:.35rem .8rem;text-align:left;vertical-align:top}.pass{color:#0a6b2d}
.fail{color:#a40e26;font-weight:600}.unknown{color:#7a5200}@media(prefers-color-scheme:dark){body{background:#12161c;
color:#dde3ea}td,th{border-color:#2c3440}.pass{color:#5fd38a}.fail{color:#ff8a95}.unknown{color:#f0c060}}"""


def counts(lines: Sequence[Line]) -> str:
    return ", ".join(f"{sum(line.verdict == v for line in lines)} {v}" for v in ("pass", "fail", "unknown"))


def as_text(lines: Sequence[Line]) -> str:
    """A table for a terminal; the last line counts the verdicts."""
    rows = [(_MARKS[x.verdict], x.what, x.value or "-", x.limit, _sample(x), x.note) for x in lines]
    widths = [max([len(row[i]) for row in rows] or [0]) for i in range(5)]
    text = ["  ".join([*(cell.ljust(widths[i]) for i, cell in enumerate(row[:5])), row[5]]).rstrip() for row in rows]
    return "\n".join([*text, counts(lines)]) + "\n"


def as_json(lines: Sequence[Line]) -> str:
    rows = [
        {
            "id": x.id, "what": x.what, "limit": x.limit, "value": x.value, "samples": x.samples, "unit": x.unit,
            "verdict": x.verdict, "note": x.note,
        }
        for x in lines
    ]  # fmt: skip
    ready = all(x.verdict == "pass" for x in lines)
    return json.dumps({"ready": ready, "lines": rows}, indent=1, ensure_ascii=False) + "\n"


def as_junit(lines: Sequence[Line]) -> str:
    """JUnit XML: a failed line is a failure, an unknown one an error (a skipped test would count as good)."""
    failed = sum(x.verdict == "fail" for x in lines)
    unknown = sum(x.verdict == "unknown" for x in lines)
    out = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f'<testsuite name="posttrain-watchdog verify" tests="{len(lines)}" failures="{failed}" errors="{unknown}">',
    ]
    for x in lines:
        message = quoteattr(_clean(f"{x.value or 'not measured'}; limit {x.limit}; {x.note}"))
        out.append(f"  <testcase classname={quoteattr('verify')} name={quoteattr(_clean(f'{x.id}: {x.what}'))}>")
        if x.verdict == "fail":
            out.append(f"    <failure message={message}/>")
        elif x.verdict == "unknown":
            out.append(f'    <error type="unknown" message={message}/>')
        out.append("  </testcase>")
    return "\n".join([*out, "</testsuite>"]) + "\n"


def as_html(lines: Sequence[Line], title: str = "Go-live checklist") -> str:
    """One self-contained page."""
    head = "".join(f"<th scope=col>{h}</th>" for h in ("verdict", "what", "value", "limit", "sample", "note"))
    rows = "\n".join(
        f"<tr><td class={x.verdict}>{x.verdict}</td>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in (x.what, x.value or "–", x.limit, _sample(x), x.note))
        + "</tr>"
        for x in lines
    )
    return (
        f'<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1><p>{counts(lines)}; "
        f"unknown is not pass.</p><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></html>\n"
    )


def _sample(line: Line) -> str:
    return f"{line.samples} {line.unit}" if line.unit else "-"


def _clean(text: str) -> str:
    """Control characters that XML 1.0 does not allow become a question mark."""
    return "".join(
        c if c in "\t\n" or (c >= " " and c not in "\ufffe\uffff" and not "\ud800" <= c <= "\udfff") else "?"
        for c in text
    )
