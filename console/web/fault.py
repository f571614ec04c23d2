"""What somebody typed that cannot be read: kept as it was typed, with the place of the fault.

Invariant: an address from here can always be opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from console.core.view_link import BadLink, from_link


@dataclass(frozen=True)
class Typed:
    """Time and filter as they stood in the line for them."""

    range: str = ""
    filter: str = ""


@dataclass(frozen=True)
class Fault:
    """`back`: where one was; `typed`: None of a form that says nothing of time and filter; `at`: the place of the fault in
    the filter, counted from 0, None where it is not in the filter.
    """

    words: str
    back: str
    typed: Typed | None
    at: int | None

    @property
    def marked(self) -> str:
        """The filter with the place of the fault below it."""
        text = self.typed.filter if self.typed is not None else ""
        return "" if self.at is None or not text else f"{text}\n{' ' * min(self.at, len(text))}^"


def typed_of(address: str) -> tuple[str, Typed]:
    """Where one was, and what was typed, of an address that could not be opened."""
    parts = urlsplit(address)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.path == "/go":
        return _openable(given.get("at", "")), Typed(given.get("range", ""), given.get("q", ""))
    start, end = given.get("from", ""), given.get("to", "")
    text = given.get("around", "") or (f"{start}..{end}" if end else start)
    return _openable(parts.path), Typed(text, given.get("q", ""))


def _openable(address: str) -> str:
    """The address if it can be opened, else its screen, else the first."""
    for tried in (address, urlsplit(address).path):
        try:
            from_link(tried)
        except (BadLink, ValueError):
            continue
        return tried or "/overview"
    return "/overview"
