"""Queries of the forensics library, asked of a ledger that has been read already.

Invariant: the console judges, groups and counts nothing that the library judges, groups or counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

import pyarrow as pa

from engine.ledger.reader import Ledger
from forensics.catalogue import Query, load_queries
from forensics.foreign_reads import ForeignReads
from forensics.library import Limits, Prepared, asking
from forensics.parameters import Value, bound

# One core is left to the screens. Time is the library's own limit: a machine that is busy is no reason for no picture.
_LIMITS = Limits(threads=1)


def library_rows(
    ledger: Ledger, reads: ForeignReads, names: Iterable[str], given: Mapping[str, str] | None = None
) -> dict[str, pa.Table]:
    """The rows of queries by name. `given`: parameters as a person writes them, never relative to now, for the queries
    that have them. Raises QueryStopped.
    """
    with asking(ledger, lambda: reads, _LIMITS) as ask:
        return {query.name: ask(query, _values(query, given or {})) for query in map(query_named, names)}


def asked_again(ledger: Ledger, names: Iterable[str]) -> Callable[..., dict[str, pa.Table]]:
    """Asks queries that judge nothing as `library_rows` does, again and again, of what is made of the ledger once:
    of what is given, those that are named.

    Raises QueryStopped, and so does what it gives.
    """
    prepared = Prepared(map(query_named, names), ledger, _LIMITS)

    def rows(given: Mapping[str, str], *wanted: str) -> dict[str, pa.Table]:
        with prepared.asking() as ask:
            return {query.name: ask(query, _values(query, given)) for query in map(query_named, wanted)}

    return rows


def _values(query: Query, given: Mapping[str, str]) -> dict[str, Value]:
    mine = {key: value for key, value in given.items() if key in query.parameters}
    return bound(query, mine, ZoneInfo("UTC"), datetime.fromtimestamp(0, UTC))


def query_named(name: str) -> Query:
    """A query of the library; KeyError where there is none."""
    return _by_name()[name]


@cache
def _by_name() -> dict[str, Query]:
    return {query.name: query for query in load_queries()}
