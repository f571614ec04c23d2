"""ASGI middleware: who may look, where a form may come from, and the headers that keep a page to itself.

Invariant: no answer but the login page, its style sheet and its script is given without a token; nothing is accepted that a page of
another origin sent; every answer carries the policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.web import intake
from console.web.gate import Gate

POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
OPEN_PATHS = frozenset({"/login", "/static/console.css", "/static/login.js", "/static/theme.js", intake.PATH})
"""Alerts come in with a token of their own, which opens nothing else."""
READING = frozenset({"GET", "HEAD"})

RefusalPage = Callable[[str], Response]
_Scope = MutableMapping[str, Any]


class Guard:
    """Wraps the application. `refusal(path)` makes the page that asks for the token."""

    def __init__(self, app: ASGIApp, gate: Gate, refusal: RefusalPage) -> None:
        self._app, self._gate, self._refusal = app, gate, refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                _protect(MutableHeaders(scope=message), scope["path"])
            await send(message)

        await self._answer(scope)(scope, receive, guarded)

    def _answer(self, scope: _Scope) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        path, query, headers = scope["path"], scope["query_string"].decode("latin-1"), Headers(scope=scope)
        if scope["method"] not in READING and not _is_own(headers):
            return PlainTextResponse("this was sent by a page of another origin", 403)
        given = dict(parse_qsl(query)).get("token")
        if given is not None and scope["method"] == "GET":
            return self._first_open(path, query, given)
        visitor = self._gate.visitor(headers)
        if visitor is not None or path in OPEN_PATHS:
            scope.setdefault("state", {})["visitor"] = visitor
            return self._app
        return self._refuse(path + (f"?{query}" if query else ""))

    def _first_open(self, path: str, query: str, given: str) -> Response:
        """A link with the token: swap it for the cookie and show the same page without it in the address."""
        rest = urlencode([pair for pair in parse_qsl(query) if pair[0] != "token"])
        if not self._gate.knows(given):
            return self._refuse(path)
        target = "/" + path.lstrip("/\\") + (f"?{rest}" if rest else "")
        return RedirectResponse(target, 303, {"set-cookie": self._gate.set_cookie(given)})

    def _refuse(self, asked: str) -> Response:
        if asked.startswith("/api/"):
            words = "no or wrong token: send Authorization: Bearer TOKEN"
            return JSONResponse(
                {"error": {"message": words, "code": "unauthorized"}}, 401, {"www-authenticate": "Bearer"}
            )
        return self._refusal(asked)


def _is_own(headers: Headers) -> bool:
    """Whether a request comes from a page of this server, or from no page at all."""
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        return False
    return headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def _protect(headers: MutableHeaders, path: str) -> None:
    headers["content-security-policy"] = POLICY
    headers["x-content-type-options"] = "nosniff"
    headers["referrer-policy"] = "same-origin"  # with less, browsers hide from forms where they were sent from
    headers["cross-origin-opener-policy"] = "same-origin"
    headers["cross-origin-resource-policy"] = "same-origin"
    if not path.startswith("/static/"):
        headers["cache-control"] = "no-store"
