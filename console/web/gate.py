"""Who may look and who may write: tokens with roles, given as a bearer header or a cookie that a token bought.

Invariant: every comparison with a secret takes constant time and is made with every token; no secret is in a URL after
the first answer; a form that writes carries a word that only a page of this server can know.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from console.web.errors import ServeError

TOKEN_VARIABLE = "KVWITNESS_CONSOLE_TOKEN"
SHORTEST = 16


class Role(StrEnum):
    """What somebody may do. Whoever looks after evidence may do all that whoever is on call may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    FORENSIC = "forensic"

    @property
    def may_write(self) -> bool:
        """Whether they may acknowledge, silence and note, where that is switched on."""
        return self is not Role.VIEWER

    @property
    def may_take_names(self) -> bool:
        """Whether the files they take away hold the names of requests and tenants."""
        return self is Role.FORENSIC


Tokens = dict[str, Role]
"""Roles by token."""


@dataclass(frozen=True)
class Visitor:
    """Somebody with a token. `who` names the token without telling it; `word` is for their forms; `bearer`: no cookie."""

    role: Role
    who: str
    word: str
    bearer: bool


def load_tokens(token_file: Path | None, environment: Mapping[str, str] = os.environ) -> tuple[Tokens, str | None]:
    """The tokens, and the one that was made here because none was given. Raises ServeError for one that will not do.

    A line is `TOKEN`, for looking alone, or `ROLE TOKEN`. Who starts a console without any has the ledger's files anyway:
    the token made here may do all.
    """
    if token_file is not None:
        try:
            text, where = token_file.read_text(), str(token_file)
        except OSError as error:
            raise ServeError(f"--token-file {token_file}: {error.strerror}; create it with a random token") from error
        except UnicodeDecodeError as error:
            raise ServeError(f"--token-file {token_file}: is not text; write the token as plain text") from error
    elif TOKEN_VARIABLE in environment:
        text, where = environment[TOKEN_VARIABLE], TOKEN_VARIABLE
    else:
        made = secrets.token_urlsafe(24)
        return {made: Role.FORENSIC}, made
    tokens = dict(_token(line.split(), where) for line in text.splitlines() if line.strip())
    if not tokens:
        raise ServeError(f"{where} holds no token: write one of {SHORTEST} characters or more")
    return tokens, None


def _token(words: list[str], where: str) -> tuple[str, Role]:
    *named, token = words
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable():
        raise ServeError(f"the token in {where} is too short or not plain ASCII: use {SHORTEST} characters or more")
    if len(named) > 1 or any(name not in set(Role) for name in named):
        raise ServeError(f"a line of {where} is neither TOKEN nor ROLE TOKEN; roles are {', '.join(Role)}")
    return token, Role(named[0]) if named else Role.VIEWER


class Gate:
    """Lets in who has a token. `can_write`: whether anybody may write at all."""

    def __init__(self, tokens: Tokens, *, can_write: bool = False) -> None:
        self.can_write = can_write
        self._tokens = [(token.encode(), role) for token, role in tokens.items()]
        digest = hashlib.sha256(b"\n".join(token for token, _ in self._tokens)).hexdigest()
        # Cookies know no ports: two consoles on one host must not take each other's.
        self.cookie_name = f"kvwitness_{digest[:8]}"

    def knows(self, token: str | None) -> bool:
        """Whether this is a token."""
        return token is not None and self._found(token.encode(), lambda known: known) is not None

    def visitor(self, headers: Mapping[str, str]) -> Visitor | None:
        """Whose token or cookie a request's headers (lower-case names) carry; None = nobody's."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            token = self._found(given.strip().encode(), lambda known: known)
            if token is not None:
                return self._visitor(*token, bearer=True)
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie_name)
        except CookieError:
            return None
        token = None if cookie is None else self._found(cookie.value.encode(), _cookie_of)
        return None if token is None else self._visitor(*token, bearer=False)

    def _found(self, given: bytes, secret: Callable[[bytes], bytes]) -> tuple[bytes, Role] | None:
        same = [hmac.compare_digest(given, secret(token)) for token, _ in self._tokens]
        return next((known for known, is_same in zip(self._tokens, same, strict=True) if is_same), None)

    def _visitor(self, token: bytes, role: Role, *, bearer: bool) -> Visitor:
        who = f"{role}-{hashlib.sha256(token).hexdigest()[:6]}"
        return Visitor(role, who, hmac.new(token, b"kvwitness console form, version 1", "sha256").hexdigest(), bearer)

    def may_write(self, visitor: Visitor) -> bool:
        """Whether a visitor may write here."""
        return self.can_write and visitor.role.may_write

    def set_cookie(self, token: str) -> str:
        """The Set-Cookie header that a right token buys; ends with the browser session."""
        return f"{self.cookie_name}={_cookie_of(token.encode()).decode()}; Path=/; HttpOnly; SameSite=Strict"


def _cookie_of(token: bytes) -> bytes:
    return hmac.new(token, b"kvwitness console cookie, version 1", "sha256").hexdigest().encode()
