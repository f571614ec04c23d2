"""Request ids of vLLM: what the API's log calls `cmpl-x-0`, the engine calls `cmpl-x-0-<8 hexadecimal digits>`.

Invariant: both become the API's name, so that the lines of one request meet, and its two halves on prefill and decode.
"""

from __future__ import annotations

import re

_INTERNAL = re.compile(r"(?P<external>.+-\d+)-[0-9a-f]{8}")


def external_id(request_id: str) -> str:
    """The API's id of a request."""
    match = _INTERNAL.fullmatch(request_id)
    return match["external"] if match is not None else request_id


_RANDOM, _CHOICE = re.compile(r"-[0-9a-f]{8}\Z"), re.compile(r"\A\d+_(?=(?:chat)?cmpl-)")


def api_id(internal: str, is_random: bool = True) -> str:
    """The API's id of what the engine calls `internal`: without the choice before it and, where the engine `is_random`,
    the eight digits that it puts after every id."""
    name = _CHOICE.sub("", internal)
    return _RANDOM.sub("", name) if is_random else name
