"""Names out of a record, made fit for a terminal and for a spreadsheet: they are whatever a client wrote.

Invariant: nothing is dropped; what was changed can be told from what is shown.
"""

from __future__ import annotations

import unicodedata

_OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def safe_text(text: str) -> str:
    """`text` with what a terminal obeys and nobody sees (control and format characters, line ends), escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode("ascii") if unicodedata.category(c) in _OBEYED else c for c in text
    )


def no_formula(text: str) -> str:
    """`text` as spreadsheets take it for text: with an apostrophe before it where they would compute it."""
    return "'" + text if text.startswith(_FORMULA) else text
