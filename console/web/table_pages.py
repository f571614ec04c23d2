"""Tables in pages, by key: a page goes on after a row, wherever that row stands by now.

Invariant: rows that come in or leave before the key move nothing; where the key's row has left, its place is gone on from.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from urllib.parse import urlencode

import pyarrow as pa

from console.core.view_link import BadLink
from console.web.asked import Asked

NEXT = "next"
"""In an address: `TABLE,PLACE,KEY` of the row after which a table goes on."""


@dataclass(frozen=True)
class Stretch:
    """Rows [start, end) of a table; addresses of its beginning and of what comes later, None = this is it."""

    start: int
    end: int
    beginning: str | None
    later: str | None


def stretch(name: str, rows: pa.Table, asked: Asked, most: int) -> Stretch:
    """The page of the table `name` that is asked for, of `most` rows at most. Raises BadLink."""
    start = _start(name, rows, asked)
    end = min(start + most, len(rows))
    later = _link(asked, f"{name},{end - 1},{_key(rows, end - 1)}") if end < len(rows) else None
    return Stretch(start, end, asked.link() if start else None, later)


def _start(name: str, rows: pa.Table, asked: Asked) -> int:
    text = asked.beside.get(NEXT, "")
    table, _, rest = text.partition(",")
    place, comma, key = rest.partition(",")
    if text and not (comma and place.isascii() and place.isdigit()):
        raise BadLink(f"{NEXT} is {text!r}; it has to be a place in a table, as the table's own links say it")
    if table != name or not len(rows):
        return 0
    near = int(place)
    found = [at for at in range(len(rows)) if _key(rows, at) == key]
    at = min(found, key=lambda at: abs(at - near), default=near) + 1
    return at if at < len(rows) else 0


def _key(rows: pa.Table, at: int) -> str:
    """What a row is: its texts, since numbers may grow."""
    texts = [name for name in rows.column_names if pa.types.is_string(rows.schema.field(name).type)]
    words = [str(rows[name][at]) for name in (["id"] if "id" in texts else texts)]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]


def _link(asked: Asked, place: str) -> str:
    address = asked.link()
    return f"{address}{'&' if '?' in address else '?'}{urlencode({NEXT: place})}"
