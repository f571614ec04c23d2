"""How names of requests and tenants are shown: as they are, under a case's pseudonyms, or not at all.

Invariant: what is covered is covered before it is drawn or exported, everywhere the same; letters of tenants stay, since
they name nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from forensics.pseudonyms import NAMED, REQUEST, TENANT, CaseKey

_HERE = {"reader_tenants": TENANT, "donor_tenants_named": TENANT, "donors": REQUEST}
HIDDEN = "▒▒▒▒"
_FREE_TEXT = ("what", "says", "reason", "adapter", "media")
"""Columns of words, in which names may stand or that clients chose: hidden as soon as names are covered."""


@dataclass(frozen=True)
class Redaction:
    """`key`: the case's, under whose pseudonyms names stand. `hide`: names are not shown at all."""

    key: CaseKey | None = None
    hide: bool = False

    @property
    def words(self) -> str:
        """For the header: `names hidden`, `names of this case`, nothing."""
        return "names hidden" if self.hide else "names of this case" if self.key else ""

    def request(self, rid: str | None) -> str | None:
        """A request's name as it may be shown."""
        return self._name(REQUEST, rid)

    def tenant(self, tenant: str | None) -> str | None:
        """A tenant's name as it may be shown."""
        return self._name(TENANT, tenant)

    def cover(self, rows: pa.Table) -> pa.Table:
        """The same rows as they may be shown; words in which names may stand are hidden with them."""
        if not self.hide and self.key is None:
            return rows
        for place, name in enumerate(rows.column_names):
            kind = NAMED.get(name) or _HERE.get(name)
            if kind is not None:
                rows = rows.set_column(place, name, _mapped(rows[name], partial(self._name, kind)))
            elif name in _FREE_TEXT:
                rows = rows.set_column(place, name, _mapped(rows[name], lambda _: HIDDEN))
        return rows

    def _name(self, kind: str, name: str | None) -> str | None:
        if name is None or name == "?":
            return name
        if self.hide:
            return HIDDEN
        return name if self.key is None else self.key.pseudonym(kind, name)


def _mapped(column: pa.ChunkedArray, change: Callable[[str], str | None]) -> pa.Array:
    def one(value: str | list[str] | None) -> str | list[str | None] | None:
        if value is None:
            return None
        return [change(part) for part in value] if isinstance(value, list) else change(value)

    kind = pa.list_(pa.string()) if pa.types.is_list(column.type) else pa.string()
    return pa.array([one(value) for value in column.to_pylist()], kind)
