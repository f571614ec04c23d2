"""Text of the ledger made safe to draw.

Invariant: what `printable` returns holds only characters of width one, so that its length is its width, no terminal
obeys it, and no two different inputs come out alike. Request ids are chosen by clients: never draw one without it.
"""

from __future__ import annotations

import unicodedata

_WIDE = {"W", "F"}
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Mn", "Me", "Mc"}

NOTHING = "–"


def printable(text: str | None) -> str:
    """`text` with control, invisible, combining and wide characters, and backslashes, escaped; None is a dash."""
    if text is None:
        return NOTHING
    return "".join(c if _plain(c) else c.encode("unicode_escape").decode("ascii") for c in text)


def _plain(c: str) -> bool:
    if " " <= c <= "~":
        return c != "\\"
    return c.isprintable() and unicodedata.category(c) not in _UNSEEN and unicodedata.east_asian_width(c) not in _WIDE


def shorten(text: str, width: int) -> str:
    """At most `width` characters, cut in the middle, where ids differ least."""
    if len(text) <= width:
        return text
    if width < 3:
        return text[: max(width, 0)]
    head = (width - 1) // 2
    return text[:head] + "…" + text[len(text) - (width - 1 - head) :]


def counted(n: int, noun: str) -> str:
    """`1 response`, `2 responses`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def ranges(numbers: tuple[int, ...] | list[int]) -> str:
    """Sorted page numbers as ranges: 3–7, 9."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("–".join(str(n) for n in part) for part in parts)
