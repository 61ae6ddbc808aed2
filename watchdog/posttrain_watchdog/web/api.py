"""The Prometheus HTTP API over the daemon's own series: what Grafana, amtool and scripts ask for."""

from __future__ import annotations

import math
import re
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from posttrain_watchdog.web.view import QueryError, View

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdwy])")
_UNIT = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_MOST_POINTS = 11_000


class BadRequest(ValueError):
    """A parameter that cannot be used; the text names it and what was expected."""


def answer(data: Any, status: int = 200) -> Response:
    return Response(orjson.dumps({"status": "success", "data": data}), status, media_type="application/json")


def refusal(text: str, kind: str = "bad_data", status: int = 400) -> Response:
    body = {"status": "error", "errorType": kind, "error": text}
    return Response(orjson.dumps(body), status, media_type="application/json")


def timestamp(text: str, name: str) -> float:
    """Seconds since the epoch from a number or RFC 3339. Raises BadRequest."""
    try:
        value = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            raise BadRequest(f'invalid parameter "{name}": cannot parse {text!r} to a valid timestamp') from None
        value = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    if not math.isfinite(value):
        raise BadRequest(f'invalid parameter "{name}": cannot parse {text!r} to a valid timestamp')
    return value


def duration(text: str, name: str) -> float:
    """Seconds from a number or a Prometheus duration. Raises BadRequest."""
    try:
        value = float(text)
    except ValueError:
        parts = _DURATION.findall(text)
        if not parts or "".join(n + u for n, u in parts) != text:
            raise BadRequest(f'invalid parameter "{name}": cannot parse {text!r} to a valid duration') from None
        value = sum(float(n) * _UNIT[u] for n, u in parts)
    if not math.isfinite(value) or value <= 0:
        raise BadRequest(f'invalid parameter "{name}": zero or negative durations are not accepted')
    return value


async def _parameters(request: Request) -> dict[str, list[str]]:
    """What the query string and a posted form say, by name."""
    found = parse_qs(request.url.query, keep_blank_values=True)
    if request.method == "POST":
        for name, values in parse_qs((await request.body()).decode("utf-8", "replace"), keep_blank_values=True).items():
            found.setdefault(name, []).extend(values)
    return found


def routes(view: View) -> list[Route]:
    """The routes under /api/v1."""

    async def query(request: Request) -> Response:
        given = {k: v[-1] for k, v in (await _parameters(request)).items()}
        try:
            when = timestamp(given["time"], "time") if "time" in given else view.now()
            return answer(view.instant(given.get("query", ""), when))
        except (BadRequest, QueryError) as error:
            return refusal(f'invalid parameter "query": {error}' if isinstance(error, QueryError) else str(error))

    async def query_range(request: Request) -> Response:
        given = {k: v[-1] for k, v in (await _parameters(request)).items()}
        try:
            for name in ("start", "end", "step"):
                if name not in given:
                    raise BadRequest(f'invalid parameter "{name}": it is missing')
            start, end = timestamp(given["start"], "start"), timestamp(given["end"], "end")
            step = duration(given["step"], "step")
            if end < start:
                raise BadRequest('invalid parameter "end": end timestamp must not be before start time')
            if (end - start) / step > _MOST_POINTS:
                raise BadRequest(f"exceeded maximum resolution of {_MOST_POINTS} points per timeseries")
            return answer(view.range(given.get("query", ""), start, end, step))
        except (BadRequest, QueryError) as error:
            return refusal(f'invalid parameter "query": {error}' if isinstance(error, QueryError) else str(error))

    async def alerts(_: Request) -> Response:
        return answer({"alerts": view.alerts()})

    async def rules(_: Request) -> Response:
        return answer(view.rules())

    async def labels(_: Request) -> Response:
        return answer(view.label_names())

    async def label_values(request: Request) -> Response:
        return answer(view.label_values(request.path_params["name"]))

    async def series(request: Request) -> Response:
        given = (await _parameters(request)).get("match[]", [])
        if not given:
            return refusal("no match[] parameter provided")
        found: list[dict[str, str]] = []
        try:
            for selector in given:
                found.extend(each["metric"] for each in view.instant(selector, view.now())["result"])
        except (QueryError, KeyError, TypeError) as error:
            return refusal(f'invalid parameter "match[]": {error}')
        return answer(found)

    async def metadata(_: Request) -> Response:
        from posttrain_watchdog.vocabulary import METRICS

        return answer({s.name: [{"type": s.kind, "help": s.help, "unit": s.unit}] for s in METRICS.values()})

    async def buildinfo(_: Request) -> Response:
        return answer({"version": view.version(), "revision": "", "goVersion": "", "application": "posttrain-watchdog"})

    async def diagnoses(_: Request) -> Response:
        return answer(
            [
                {
                    "run": run.name,
                    "cause": d.cause,
                    "confidence": d.confidence,
                    "summary": d.summary,
                    "evidence": dict(d.evidence),
                    "first_checks": list(d.first_checks),
                    "first_step": d.first_step,
                    "last_step": d.last_step,
                    "tokens": d.tokens,
                    "labels": dict(d.labels),
                }
                for run in view.runs()
                for d in run.diagnoses
            ]
        )

    both = ["GET", "POST"]
    return [
        Route("/api/v1/query", query, methods=both),
        Route("/api/v1/query_range", query_range, methods=both),
        Route("/api/v1/alerts", alerts),
        Route("/api/v1/rules", rules),
        Route("/api/v1/labels", labels, methods=both),
        Route("/api/v1/label/{name}/values", label_values),
        Route("/api/v1/series", series, methods=both),
        Route("/api/v1/metadata", metadata),
        Route("/api/v1/status/buildinfo", buildinfo),
        Route("/api/v1/diagnoses", diagnoses),
    ]
