"""Whether a form may write: the same for every form of the console.

Invariant: nothing is written where writing is switched off, by a role that may not, from a form that no page of this
server made, or from the address of a replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest
from urllib.parse import parse_qsl, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request

from console.core.view import Mode
from console.web.gate import Gate, Visitor


def check_writer(gate: Gate, visitor: Visitor | None, request: Request, form: Mapping[str, str]) -> Visitor:
    """The visitor who may. Raises HTTPException for whoever may not, for a form that is not of this server, and for one that
    was sent from a replay: what is known there is not what is.
    """
    if visitor is None or not gate.may_write(visitor):
        why = "this console is read only" if not gate.can_write else "this token may look only"
        raise HTTPException(403, f"{why}: start it with --write and a token of the role operator")
    # A cookie goes along with whatever a browser sends; a bearer token is sent on purpose.
    if not visitor.bearer and not compare_digest(form.get("word", ""), visitor.word):
        raise HTTPException(403, "this form is not of this page: open the page again")
    if any(_replays(address) for address in (str(request.url), request.headers.get("referer", ""))):
        raise HTTPException(
            409, "this was sent from a replay of what was: F goes back to what is, and there it can be done"
        )
    return visitor


def _replays(address: str) -> bool:
    return ("mode", Mode.REPLAY.value) in parse_qsl(urlsplit(address).query)
