"""Names of one case: requests and tenants in a result stand under pseudonyms that only the case's key leads back from.

Invariant: the same name has the same pseudonym everywhere in a case, and another in every other case. Without the key
nothing leads from one to the other: a pseudonym is the beginning of an HMAC-SHA-256 of kind and name.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from engine.ledger.reader import Ledger

REQUEST, TENANT = "q", "c"
LEAST_KEY_BYTES = 16
_DIGITS = 12
NAMED = {
    "rid": REQUEST, "rids": REQUEST, "donors": REQUEST, "donor_rid": REQUEST, "other_rid": REQUEST, "giver_rid": REQUEST, "by_rid": REQUEST,
    "next_rid": REQUEST, "fastest": REQUEST, "tenant": TENANT, "donor_tenant": TENANT, "giver_tenant": TENANT,
}  # fmt: skip
"""Columns of results that name requests or tenants."""


class BadCaseKey(ValueError):
    """A case key that cannot be read, or is too short to keep anything."""


@dataclass(frozen=True)
class CaseKey:
    """The key of one case."""

    secret: bytes

    def pseudonym(self, kind: str, name: str) -> str:
        """What stands for a name in this case: `q-...` of a request, `c-...` of a tenant."""
        digest = hmac.new(self.secret, f"{kind}:{name}".encode(), hashlib.sha256).hexdigest()
        return f"{kind}-{digest[:_DIGITS]}"

    def cover(self, rows: pa.Table) -> pa.Table:
        """The same rows under pseudonyms."""
        for place, name in enumerate(rows.column_names):
            if name in NAMED:
                rows = rows.set_column(place, name, self._covered(rows[name], NAMED[name]))
        return rows

    def reveal(self, ledger: Ledger, pseudonyms: Iterable[str]) -> dict[str, str]:
        """The names behind pseudonyms, of those that the ledger knows."""
        wanted, requests = set(pseudonyms), ledger.tables["requests"]
        known = [(REQUEST, name) for name in requests["rid"].unique().to_pylist() if name is not None]
        known += [(TENANT, name) for name in requests["tenant"].unique().to_pylist() if name is not None]
        found = {self.pseudonym(kind, name): name for kind, name in known}
        return {each: found[each] for each in sorted(wanted & set(found))}

    def _covered(self, column: pa.ChunkedArray, kind: str) -> pa.Array:
        def cover(value: str | list[str] | None) -> str | list[str | None] | None:
            if value is None or value == "?":
                return value
            return [cover(one) for one in value] if isinstance(value, list) else self.pseudonym(kind, value)  # type: ignore[misc]

        return pa.array([cover(value) for value in column.to_pylist()], column.type)


def read_case_key(path: Path) -> CaseKey:
    """The key in a file: its bytes without blanks at the ends. Raises BadCaseKey."""
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise BadCaseKey(f"{path}: {error.strerror}") from error
    if len(secret) < LEAST_KEY_BYTES:
        what = f"{path}: {len(secret)} bytes are too short for a case key; make one with `openssl rand -hex 32 > {path.name}`"
        raise BadCaseKey(what)
    return CaseKey(secret)
