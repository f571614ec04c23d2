"""Who may look: one token, given as a bearer header or a cookie that the token bought.

Invariant: every comparison with a secret takes constant time, and no secret is in a URL after the first answer.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from console.web.errors import ServeError

TOKEN_VARIABLE = "KVWITNESS_CONSOLE_TOKEN"
SHORTEST = 16


def load_token(token_file: Path | None, environment: Mapping[str, str] = os.environ) -> tuple[str, bool]:
    """The token, and whether it was made here because none was given. Raises ServeError for one that will not do."""
    if token_file is not None:
        try:
            token, where = token_file.read_text().strip(), str(token_file)
        except OSError as error:
            raise ServeError(f"--token-file {token_file}: {error.strerror}; create it with a random token") from error
        except UnicodeDecodeError as error:
            raise ServeError(f"--token-file {token_file}: is not text; write the token as plain text") from error
    elif TOKEN_VARIABLE in environment:
        token, where = environment[TOKEN_VARIABLE].strip(), TOKEN_VARIABLE
    else:
        return secrets.token_urlsafe(24), True
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable():
        raise ServeError(f"the token in {where} is too short or not plain ASCII: use {SHORTEST} characters or more")
    return token, False


class Gate:
    """Lets in who has the token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        digest = hashlib.sha256(self._token).hexdigest()
        # Cookies know no ports: two consoles on one host must not take each other's.
        self.cookie_name = f"kvwitness_{digest[:8]}"
        self.cookie_value = hmac.new(self._token, b"kvwitness console cookie, version 1", "sha256").hexdigest()

    def knows(self, token: str | None) -> bool:
        """Whether this is the token."""
        return token is not None and hmac.compare_digest(token.encode(), self._token)

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Whether a request's headers (lower-case names) carry the token or its cookie."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.knows(given.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie_name)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self.cookie_value.encode())

    @property
    def set_cookie(self) -> str:
        """The Set-Cookie header that a right token buys; ends with the browser session."""
        return f"{self.cookie_name}={self.cookie_value}; Path=/; HttpOnly; SameSite=Strict"
