"""Values out of JSON that somebody else wrote: the type that is wanted, or nothing.

Invariant: no value is converted into another meaning; a number out of the ledger's range is nothing.
"""

from __future__ import annotations

import json
import math
from typing import Any

_MOST = (1 << 63) - 1


def whole(value: object) -> int | None:
    """An integer that fits the ledger's columns; None for anything else."""
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -_MOST - 1 <= value <= _MOST:
        return None
    return value


def digits(text: str | None) -> int | None:
    """An integer that a log line prints in decimal, with or without thousands' commas."""
    if text is None:
        return None
    bare = text.replace(",", "")
    return whole(int(bare)) if len(bare) <= 20 and bare.lstrip("-").isascii() and bare.lstrip("-").isdigit() else None


def text(value: object) -> str | None:
    """A string; None for anything else and for an empty one."""
    return value if isinstance(value, str) and value else None


def mapping(value: object) -> dict[str, Any]:
    """A JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def parsed(line: str) -> dict[str, Any] | None:
    """The JSON object in a line; None where there is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
