"""Queries of the forensics library, asked of a ledger that has been read already.

Invariant: the console judges, groups and counts nothing that the library judges, groups or counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

import pyarrow as pa

from engine.ledger.reader import Ledger
from forensics.catalogue import Query, load_queries
from forensics.foreign_reads import ForeignReads
from forensics.library import Limits, run_query
from forensics.parameters import bound

# One core is left to the screens.
_LIMITS = Limits(threads=1, timeout_s=120.0)


@dataclass(frozen=True)
class Library:
    """One ledger and its verdicts, and what may be asked of them."""

    ledger: Ledger
    judge: Callable[[], ForeignReads]

    def rows(self, name: str, **given: str) -> pa.Table:
        """The rows of a query. Parameters as a person writes them, and never relative to now. Raises QueryStopped."""
        query = query_named(name)
        values = bound(query, given, ZoneInfo("UTC"), datetime.fromtimestamp(0, UTC))
        return run_query(query, self.ledger, values, self.judge, _LIMITS)


def query_named(name: str) -> Query:
    """A query of the library; KeyError where there is none."""
    return _by_name()[name]


@cache
def _by_name() -> dict[str, Query]:
    return {query.name: query for query in load_queries()}
