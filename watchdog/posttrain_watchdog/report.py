"""Replay's findings as text for a terminal and as one HTML file that can be mailed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from posttrain_watchdog.model import Diagnosis
from posttrain_watchdog.replay import AlertRecord, Result, RunRecord
from posttrain_watchdog.vocabulary import CAUSES
from posttrain_watchdog.web import page


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _diagnosis_lines(d: Diagnosis) -> list[str]:
    since = f" from step {d.first_step}" if d.first_step is not None else ""
    tokens = f", {d.tokens:,} tokens" if d.tokens else ""
    where = "".join(f" {k}={v}" for k, v in d.labels)
    lines = [f"  {d.cause}{where} (confidence {d.confidence:.2f}{since}{tokens})", f"    {d.summary}"]
    if d.evidence:
        lines.append("    evidence: " + ", ".join(f"{k}={_figure(v)}" for k, v in d.evidence.items()))
    lines += [f"    {n}. {check}" for n, check in enumerate(d.first_checks, 1)]
    return lines


def _alert_line(alert: AlertRecord) -> str:
    span = f"step {alert.first_step}" + (f" to {alert.last_step}" if alert.last_step is not None else " on")
    return f"  {alert.severity.upper():8} {alert.alert} ({span}): {alert.annotations.get('summary', '')}"


def _run_lines(run: RunRecord) -> list[str]:
    span = f"steps {run.steps[0]} to {run.steps[1]}" if run.steps else "no steps"
    lines = [f"run {run.run}: {span}"]
    spoken = [d for d in run.diagnoses if d.confidence >= 0.5 and d.cause != "healthy"]
    if spoken:
        lines.append("causes")
        for diagnosis in spoken:
            lines += _diagnosis_lines(diagnosis)
    if run.alerts:
        lines.append("alerts")
        lines += [_alert_line(a) for a in run.alerts]
    if not spoken and not run.alerts:
        lines.append("  nothing wrong found in what was read:")
    lines.append("read: " + ", ".join(f"{path} ({kind})" for path, kind in run.sources))
    return lines


def text(result: Result) -> str:
    """The findings for a terminal."""
    blocks = ["\n".join(_run_lines(run)) for run in result.runs]
    if result.unread:
        blocks.append("not read\n" + "\n".join(f"  {path}: {reason}" for path, reason in result.unread))
    return "\n\n".join(blocks) + "\n"


def _chart(name: str, points: Sequence[tuple[int, float]]) -> str:
    values = [v for _, v in points if math.isfinite(v)]
    if len(values) < 2:
        return ""
    drawing = page.sparkline([v for _, v in points])
    return (
        f'<div class="tile"><span class="soft">{escape(dict(page.DRAWN).get(name, name))}</span><br>'
        f"<b>{values[-1]:.4g}</b>{drawing}</div>"
    )


def _html_diagnosis(d: Diagnosis) -> str:
    rows = "".join(
        f'<tr><td><code>{escape(k)}</code></td><td class="number">{escape(_figure(v))}</td></tr>'
        for k, v in d.evidence.items()
    )
    checks = "".join(f"<li>{escape(c)}</li>" for c in d.first_checks)
    since = f" from step {d.first_step}" if d.first_step is not None else ""
    return (
        f'<section class="verdict critical"><h2>{escape(d.cause)}</h2><p>{escape(d.summary)}</p>'
        f'<p class="soft">{escape(CAUSES.get(d.cause, ""))}; confidence {d.confidence:.2f}{since}</p>'
        f"<h3>Check, in this order</h3><ol>{checks}</ol><h3>Evidence</h3><table><tbody>{rows}</tbody></table></section>"
    )


def _html_run(run: RunRecord) -> str:
    span = f"steps {run.steps[0]} to {run.steps[1]}" if run.steps else "no steps"
    spoken = [d for d in run.diagnoses if d.confidence >= 0.5 and d.cause != "healthy"]
    said = "".join(_html_diagnosis(d) for d in spoken)
    if not spoken and not run.alerts:
        said = '<section class="verdict"><h2>Nothing wrong found in what was read</h2></section>'
    alerts = "".join(
        f'<tr><td><span class="tag {escape(a.severity)}">{escape(a.severity)}</span></td>'
        f"<td><b>{escape(a.alert)}</b></td>"
        f'<td class="number">{a.first_step}</td><td>{escape(a.annotations.get("summary", ""))}<br>'
        f'<span class="soft">{escape(a.annotations.get("description", ""))}</span></td></tr>'
        for a in run.alerts
    )
    table = (
        '<section><h2>Alerts</h2><div class="scroll"><table><thead><tr><th></th><th>alert</th><th>step</th>'
        "<th>what</th>"
        f"</tr></thead><tbody>{alerts}</tbody></table></div></section>"
        if alerts
        else ""
    )
    charts = "".join(_chart(name, points) for name, points in run.history.items())
    drawn = f'<section><h2>Over the steps</h2><div class="tiles">{charts}</div></section>' if charts else ""
    read = "".join(
        f'<tr><td class="mono">{escape(path)}</td><td>{escape(kind)}</td></tr>' for path, kind in run.sources
    )
    return (
        f"<section><h2>Run {escape(run.run)}</h2><p class='soft'>{span}</p></section>{said}{table}{drawn}"
        f"<section><h2>What was read</h2><table><tbody>{read}</tbody></table></section>"
    )


def html(result: Result) -> str:
    """The findings as one self-contained page."""
    unread = "".join(
        f'<tr><td class="mono">{escape(path)}</td><td>{escape(reason)}</td></tr>' for path, reason in result.unread
    )
    left = f"<section><h2>Not read</h2><table><tbody>{unread}</tbody></table></section>" if unread else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>posttrain-watchdog replay</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{page.style()}</style></head><body><header><h1>posttrain-watchdog replay</h1></header>"
        f"<main>{''.join(_html_run(run) for run in result.runs)}{left}</main></body></html>\n"
    )
