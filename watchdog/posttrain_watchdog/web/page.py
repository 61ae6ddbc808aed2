"""The status page: what is wrong, why, and what to look at first; rendered on the server, without script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from importlib import resources
from typing import Any

from posttrain_watchdog.model import Diagnosis
from posttrain_watchdog.vocabulary import CAUSES
from posttrain_watchdog.web.view import QueryError, RunView, View

DRAWN = (
    ("posttrain_importance_ratio_mean", "importance ratio, mean"),
    ("posttrain_importance_ratio_reverse_mean", "reverse ratio, mean"),
    ("posttrain_kl_k3", "KL (k3), nats"),
    ("posttrain_logprob_difference_abs_mean", "mean |d|, nats"),
    ("posttrain_trainer_reward_mean", "reward"),
    ("posttrain_trainer_entropy", "entropy, nats"),
    ("posttrain_trainer_grad_norm", "gradient norm"),
    ("posttrain_trainer_completion_length_mean", "completion length, tokens"),
)
"""What the page draws of each run, where it is there."""

_POINTS = 120


def style() -> str:
    """The page's style sheet."""
    return resources.files("posttrain_watchdog.web").joinpath("style.css").read_text(encoding="utf-8")


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return escape(value)
    if math.isnan(value) or math.isinf(value):
        return str(value)
    return f"{value:.4g}"


def _when(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return "?"


def sparkline(values: Sequence[float]) -> str:
    """An inline SVG of the finite values; empty where fewer than two are finite."""
    finite = [(i, v) for i, v in enumerate(values) if math.isfinite(v)]
    if len(finite) < 2:
        return ""
    low, high = min(v for _, v in finite), max(v for _, v in finite)
    span = (high - low) or 1.0
    width = max(len(values) - 1, 1)
    points = " ".join(f"{100 * i / width:.2f},{38 - 36 * (v - low) / span:.2f}" for i, v in finite)
    label = escape(f"from {low:.4g} to {high:.4g}")
    return (
        f'<svg viewBox="0 0 100 40" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<polyline points="{points}"/></svg>'
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already escaped by the caller."""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _diagnosis(d: Diagnosis) -> str:
    rows = [[f"<code>{escape(k)}</code>", _number(v)] for k, v in d.evidence.items()]
    checks = "".join(f"<li>{escape(c)}</li>" for c in d.first_checks)
    since = f" since step {d.first_step}" if d.first_step is not None else ""
    tokens = f", {d.tokens:,} tokens" if d.tokens else ""
    where = "".join(f" {escape(k)}={escape(v)}" for k, v in d.labels)
    return (
        f"<h2>{escape(d.cause)}{where}</h2><p>{escape(d.summary)}</p>"
        f'<p class="soft">{escape(CAUSES.get(d.cause, ""))}; confidence {d.confidence:.2f}{since}{tokens}</p>'
        f"<h3>Check, in this order</h3><ol>{checks}</ol><h3>Evidence</h3>{_table(('statistic', 'value'), rows)}"
    )


def _tiles(view: View, run: RunView) -> str:
    tiles = []
    quoted = run.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    now = view.now()
    span = min(3600.0, max(10.0, now - view.started()))
    for name, title in DRAWN:
        if name not in run.figures:
            continue
        try:
            drawn = view.range(f'{name}{{run="{quoted}"}}', now - span, now, span / _POINTS)["result"]
            values = [float(v) for _, v in drawn[0]["values"]] if drawn else []
        except (QueryError, KeyError, ValueError):
            values = []
        tiles.append(
            f'<div class="tile"><span class="soft">{escape(title)}</span><br><b>{_number(run.figures[name])}</b>'
            f"{sparkline(values)}</div>"
        )
    last = "hour" if span >= 3600 else f"{span / 60:.0f} minutes" if span >= 120 else f"{span:.0f} seconds"
    return f'<h3>Last {last}</h3><div class="tiles">{"".join(tiles)}</div>' if tiles else ""


def _alerts(alerts: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    order = {"critical": 0, "warning": 1}
    for alert in sorted(alerts, key=lambda a: (a["state"] != "firing", order.get(a["labels"].get("severity", ""), 2))):
        labels, notes = alert["labels"], alert["annotations"]
        severity = labels.get("severity", "")
        shown = severity if severity in ("critical", "warning", "info") else "info"
        rest = " ".join(f"{k}={v}" for k, v in labels.items() if k not in ("alertname", "severity"))
        text = notes.get("summary") or notes.get("description") or ""
        more = notes.get("description", "")
        rows.append(
            [
                f'<span class="tag {shown}">{escape(severity or "none")}</span>',
                f'<b>{escape(labels.get("alertname", ""))}</b><br><span class="soft mono">{escape(rest)}</span>',
                escape(str(alert["state"])),
                escape(text) + (f'<br><span class="soft">{escape(more)}</span>' if more != text else ""),
            ]
        )
    if not rows:
        return '<section><h2>Alerts</h2><p class="soft">None is pending or firing.</p></section>'
    return f"<section><h2>Alerts</h2>{_table(('severity', 'alert', 'state', 'what'), rows)}</section>"


def _is_well(run: RunView) -> bool:
    return not any(d.confidence >= 0.5 and d.cause != "healthy" for d in run.diagnoses)


def _run(view: View, run: RunView, alerts: Sequence[Mapping[str, Any]]) -> str:
    spoken = [d for d in run.diagnoses if d.confidence >= 0.5 and d.cause != "healthy"]
    mine = [a for a in alerts if a["labels"].get("run", run.name) == run.name and a["state"] == "firing"]
    severities = {a["labels"].get("severity") for a in mine}
    worst = "critical" if "critical" in severities else "warning" if spoken or "warning" in severities else ""
    at = "no step seen yet" if run.step is None else f"step {run.step}"
    ended = ", finished" if run.finished else ""
    if spoken:
        verdict = _diagnosis(spoken[0])
    elif mine:
        verdict = f"<h2>{len(mine)} alert{'s' if len(mine) > 1 else ''} firing, no cause named</h2>"
    elif run.step is None:
        verdict = "<h2>Waiting for data</h2>"
    else:
        verdict = (
            "<h2>Nothing wrong found</h2><p>Said of the sources below alone; what is not listed was not looked at.</p>"
        )
    others = "".join(f"<section>{_diagnosis(d)}</section>" for d in spoken[1:])
    sources = [
        [
            f'<span class="tag {"ok" if s.up else "warning"}">{"up" if s.up else "down"}</span>',
            f'<span class="mono">{escape(s.path)}</span>',
            escape(s.kind),
            f"{s.records:,}",
            escape(s.detail),
        ]
        for s in run.sources
    ]
    table = _table(("", "source", "kind", "records", "note"), sources) if sources else '<p class="soft">None yet.</p>'
    return (
        f'<section class="verdict {worst}"><p class="soft">run <b>{escape(run.name)}</b>, {at}{ended}</p>'
        f"{verdict}</section>"
        f"{others}<section>{_tiles(view, run)}<h3>Sources</h3>{table}</section>"
    )


def status_page(view: View) -> str:
    """The whole page; asks to be loaded again every 5 seconds."""
    alerts = view.alerts()
    runs = view.runs()
    body = "".join(_run(view, run, alerts) for run in sorted(runs, key=_is_well))
    if not runs:
        body = (
            "<section><h2>No run is followed</h2>"
            "<p>Name its files in the configuration, or start it on this host.</p></section>"
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>posttrain-watchdog</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta http-equiv="refresh" content="5">'
        '<link rel="stylesheet" href="/style.css"></head><body><header><h1>posttrain-watchdog</h1>'
        f"<p>{escape(view.version())} &middot; {_when(view.now())} &middot; "
        '<a href="/metrics">metrics</a> &middot; <a href="/api/v1/rules">rules</a> &middot; '
        '<a href="/api/v1/diagnoses">diagnoses</a></p></header>'
        f"<main>{body}{_alerts(alerts)}</main></body></html>"
    )
