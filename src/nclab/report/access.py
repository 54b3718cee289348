"""Who may ask the live page, and what for; the headers of every answer."""

import hmac
import ipaddress
import re
import socket
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = {ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")}
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::[0-9]+)?")
"""A Host header: an IPv6 address in brackets or a name, then perhaps a port."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class ReadOnlyAccess:
    """Refuses foreign names and everything but reading; adds the headers of every answer.

    With a token also everyone who does not know it: in the address, from which it goes into a
    cookie, or as `Authorization: Bearer TOKEN`.
    """

    def __init__(self, app: ASGIApp, host: str, *, token: str = "") -> None:
        self._app, self._host, self._token = app, host, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                for name, value in HEADERS.items():
                    if name.lower().encode() not in known:
                        message["headers"].append((name.lower().encode(), value.encode()))
            await send(message)

        asked = [value for name, value in scope["headers"] if name == b"host"]
        if len(asked) != 1 or not allowed(asked[0].decode("latin-1"), self._host):
            text = "Expected the name or address of this server as Host. Open it as it was told.\n"
            await PlainTextResponse(text, status_code=400)(scope, receive, with_headers)
        elif scope["method"] not in ("GET", "HEAD"):
            text = "This server only answers GET and HEAD.\n"
            answer = PlainTextResponse(text, status_code=405, headers={"Allow": "GET, HEAD"})
            await answer(scope, receive, with_headers)
        elif refused := self._refused(Request(scope)) if self._token else None:
            await refused(scope, receive, with_headers)
        else:
            await self._app(scope, receive, with_headers)

    def _refused(self, request: Request) -> Response | None:
        """What is answered in place of the page; None to one who knows the token."""
        cookie = f"nclab-{(request.scope.get('server') or ('', 0))[1]}"
        given = request.headers.get("authorization", "")
        if self._is_token(given.removeprefix("Bearer ")):
            return None
        query = parse_qsl(request.scope["query_string"].decode("latin-1"))
        if any(name == "token" and self._is_token(value) for name, value in query):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            path = "/" + quote(request.scope["path"].lstrip("/\\"))  # never another server
            answer = RedirectResponse(f"{path}?{rest}" if rest else path, status_code=303)
            answer.set_cookie(cookie, self._token, httponly=True, samesite="strict")
            return answer
        if self._is_token(request.cookies.get(cookie, "")):
            return None
        text = "Expected the token of this server. Open the whole address that it has printed.\n"
        return PlainTextResponse(text, status_code=403)

    def _is_token(self, given: str) -> bool:
        """In the same time for every guess."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())


def allowed(header: str, host: str) -> bool:
    """Whether a Host header names this server and not a page that points its name at us.

    >>> allowed("localhost:8000", "127.0.0.1"), allowed("evil.example:8000", "127.0.0.1")
    (True, False)
    """
    parts = HOST.fullmatch(header.strip().lower())
    if parts is None:
        return False
    name = parts[1] or parts[2]
    asked, own = _address(name), _address(host)
    everywhere = own is not None and own.is_unspecified
    if asked is not None:  # an address is no name that could be pointed elsewhere
        return everywhere or asked == own or asked in LOOPBACK
    known = {"localhost", host.lower()} | ({socket.gethostname().lower()} if everywhere else set())
    return parts[1] is None and name in known


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
