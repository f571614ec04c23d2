"""Request ids of vLLM: what the API's log calls `cmpl-x-0`, the engine calls `cmpl-x-0-<8 hexadecimal digits>`.

Invariant: both become the API's name, so that the lines of one request meet.
"""

from __future__ import annotations

import re

_INTERNAL = re.compile(r"(?P<external>.+-\d+)-[0-9a-f]{8}")


def external_id(request_id: str) -> str:
    """The API's id of a request."""
    match = _INTERNAL.fullmatch(request_id)
    return match["external"] if match is not None else request_id
