"""The application: metrics, API, health and the status page, wired to a View.

Promises: nothing from a log line or a request reaches a page unescaped; pages run no script; a browser on another
site can neither read the answers (Host is checked) nor trigger a reload (Origin is checked).
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from posttrain_watchdog.web import api, page
from posttrain_watchdog.web.exposition import exposition
from posttrain_watchdog.web.view import View

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def create_app(view: View, hosts: Sequence[str] = LOOPBACK_HOSTS) -> Starlette:
    """`hosts` are the names by which clients may call the daemon; "*" admits any."""

    async def metrics(request: Request) -> Response:
        body, content_type = exposition(view.snapshots(), request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("posttrain-watchdog is healthy.\n")

    async def ready(_: Request) -> Response:
        if view.ready():
            return PlainTextResponse("posttrain-watchdog is ready.\n")
        return PlainTextResponse("posttrain-watchdog is starting.\n", 503)

    async def reload(request: Request) -> Response:
        origin = request.headers.get("origin")
        if origin is not None and origin != f"{request.url.scheme}://{request.url.netloc}":
            return PlainTextResponse("a reload is taken from this site only\n", 403)
        faults = view.reload()
        if faults:
            return PlainTextResponse("the last good rules stay in force:\n" + "\n".join(faults) + "\n", 500)
        return PlainTextResponse("")

    async def status(_: Request) -> Response:
        return HTMLResponse(page.status_page(view), headers=_HEADERS)

    async def style(_: Request) -> Response:
        return Response(page.style(), media_type="text/css")

    routes = [
        Route("/", status),
        Route("/style.css", style),
        Route("/metrics", metrics),
        Route("/healthz", healthy),
        Route("/-/healthy", healthy),
        Route("/readyz", ready),
        Route("/-/ready", ready),
        Route("/-/reload", reload, methods=["POST", "PUT"]),
        *api.routes(view),
    ]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))])
