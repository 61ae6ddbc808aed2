"""The words of a notification for people: the same in every chat, in English and Chinese.

Promises: pure; what labels and annotations say is data: control characters are taken out here, and each receiver
escapes its own markup. At most 20 alerts are written out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone

from posttrain_watchdog.alerting.notification import Notice, Notification

MOST_ALERTS = 20
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_WORDS = {
    "en": {
        "firing": "FIRING",
        "resolved": "RESOLVED",
        "since": "since",
        "until": "until",
        "more": "and {n} more alerts",
        "silent": "{n} further alerts follow from {names} and are kept silent",
        "checks": "Check",
        "runbook": "Runbook",
    },
    "zh": {
        "firing": "告警",
        "resolved": "已恢复",
        "since": "始于",
        "until": "止于",
        "more": "另有 {n} 条告警",
        "silent": "另有 {n} 条告警由 {names} 引起,已静默",
        "checks": "排查",
        "runbook": "手册",
    },
}

Escape = Callable[[str], str]


def plain(text: str) -> str:
    """The text without control and direction characters."""
    return _CONTROL.sub("", text)


def words(language: str) -> dict[str, str]:
    return _WORDS.get(language, _WORDS["en"])


def clock_time(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return "?"


def headline(n: Notification, language: str = "en") -> str:
    """[FIRING:2] LogprobsModeWrong (run=a)"""
    said = words(language)
    count = f":{len(n.firing)}" if n.firing else f":{len(n.resolved)}"
    names = list(dict.fromkeys(each.name for each in (n.firing or n.notices)))
    listed = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    group = ", ".join(f"{k}={v}" for k, v in sorted(n.group.items()) if v)
    text = f"[{said[n.status]}{count}] {listed}" + (f" ({group})" if group else "")
    return plain(text)[:250]


def paragraph(each: Notice, language: str = "en", escape: Escape = str) -> list[str]:
    """The lines of one alert, its title first."""
    said = words(language)
    notes = {k: escape(plain(v)) for k, v in each.annotations.items()}
    title = notes.get("summary") or escape(plain(each.name))
    state = said["firing"] if each.firing else said["resolved"]
    severity = f" {escape(plain(each.severity))}" if each.severity else ""
    lines = [f"{state}{severity}: {title}"]
    if notes.get("description"):
        lines.append(notes["description"])
    if each.firing:
        for place, key in enumerate(("first_check", "second_check", "third_check"), 1):
            if notes.get(key):
                lines.append(f"{said['checks']} {place}: {notes[key]}")
        if notes.get("runbook"):
            lines.append(f"{said['runbook']}: {notes['runbook']}")
    shown = ", ".join(f"{k}={v}" for k, v in sorted(each.labels.items()) if k not in ("alertname", "severity"))
    if shown:
        lines.append(escape(plain(f"{each.name}: {shown}")))
    span = f"{said['since']} {clock_time(each.starts_at)}"
    if each.ends_at is not None:
        span += f" {said['until']} {clock_time(each.ends_at)}"
    lines.append(span)
    return lines


def tail(n: Notification, language: str = "en") -> list[str]:
    """What is not written out: alerts too many, and symptoms."""
    said = words(language)
    lines = []
    if len(n.notices) > MOST_ALERTS:
        lines.append(said["more"].format(n=len(n.notices) - MOST_ALERTS))
    if n.silent:
        lines.append(said["silent"].format(n=n.silent, names=plain(", ".join(n.root_causes))))
    return lines


def text(n: Notification, language: str = "en", escape: Escape = str, limit: int = 100_000) -> str:
    """Everything, paragraphs apart, at most `limit` bytes of UTF-8."""
    parts = ["\n".join(paragraph(each, language, escape)) for each in n.notices[:MOST_ALERTS]]
    parts += [escape(line) for line in tail(n, language)]
    return cut("\n\n".join(parts), limit)


def cut(given: str, limit: int) -> str:
    """At most so many bytes of UTF-8, never half a character."""
    data = given.encode("utf-8", "replace")
    if len(data) <= limit:
        return given
    return data[: limit - 3].decode("utf-8", "ignore") + "…"
