"""Whether a form may write: the same for every form of the console.

Invariant: nothing is written where writing is switched off, by a role that may not, or from a form that no page of this
server made.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest

from starlette.exceptions import HTTPException

from console.web.gate import Gate, Visitor


def check_writer(gate: Gate, visitor: Visitor | None, form: Mapping[str, str]) -> Visitor:
    """The visitor who may. Raises HTTPException for whoever may not, and for a form that is not of this server."""
    if visitor is None or not gate.may_write(visitor):
        why = "this console is read only" if not gate.can_write else "this token may look only"
        raise HTTPException(403, f"{why}: start it with --write and a token of the role operator")
    # A cookie goes along with whatever a browser sends; a bearer token is sent on purpose.
    if not visitor.bearer and not compare_digest(form.get("word", ""), visitor.word):
        raise HTTPException(403, "this form is not of this page: open the page again")
    return visitor
