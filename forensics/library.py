"""Runs a query of the library on a ledger, and says with the result where it comes from.

Invariant: a query sees the ledger's tables, its gaps, and the verdicts where it says that it reads them; every time in
there is UTC without a zone. A result has exactly the columns that the query's front matter names.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from engine.ledger.reader import Ledger
from engine.ledger.refs import expand_pages
from forensics.catalogue import Query, QueryError
from forensics.foreign_reads import ForeignReads
from forensics.parameters import Value
from forensics.progress import Counted, uncounted
from forensics.provenance import skew_us
from forensics.results import gaps_table
from forensics.shut_database import shut_database

_MADE = re.compile(r"CREATE TEMP (TABLE|VIEW) (\w+)")
_MENTIONED = re.compile(r"\$(\w+)")
_WORD = re.compile(r"\w+")
_GAPS = "gaps"
_UTC = pa.timestamp("us", tz="UTC")
_NAIVE = pa.timestamp("us")


class QueryStopped(Exception):
    """A query ran into its limit of time or memory; says which, and what to do."""


@dataclass(frozen=True)
class Limits:
    """What one query may use: `timeout_s` seconds, `memory` as DuckDB writes it, `threads`."""

    threads: int = 2
    memory: str = "4GB"
    timeout_s: float = 600.0


def run_query(
    query: Query,
    ledger: Ledger,
    values: Mapping[str, Value],
    judge: Callable[[], ForeignReads],
    limits: Limits,
    counted: Counted = uncounted,
) -> pa.Table:
    """The rows of `query`; `judge` is asked for verdicts only where it reads them. `$skew_us` is bound beside `values`.

    `counted` hears how many of its statements are done.

    Raises QueryStopped; QueryError where the result is not what the query's front matter says.
    """
    with asking(ledger, judge if query.judges else None, limits, counted) as ask:
        return ask(query, values)


@contextmanager
def asking(
    ledger: Ledger, judge: Callable[[], ForeignReads] | None, limits: Limits, counted: Counted = uncounted
) -> Iterator[Callable[[Query, Mapping[str, Value]], pa.Table]]:
    """Several queries of one ledger: what they share is loaded and computed once. Without `judge`, none that judges.

    What it gives raises as `run_query` does.
    """
    tables = _tables(ledger, {*ledger.tables, _GAPS})
    if judge is not None:
        reads = judge()
        tables |= {"responses": _naive(reads.responses), "findings": _naive(reads.findings)}
    with _over(tables, limits, skew_us(ledger), {}, counted) as ask:
        yield ask


class Prepared:
    """Queries of one ledger that are asked again and again: what their steps before the last make is made once, and is
    all that is kept of the ledger. None that judges, and none whose last step reads more than that.
    """

    def __init__(self, queries: Iterable[Query], ledger: Ledger, limits: Limits) -> None:
        """Raises QueryStopped; QueryError for a query whose steps before the last depend on what it is asked with."""
        self._limits, self._skew, self._done = limits, skew_us(ledger), dict[str, _Made]()
        steps = [(query, step) for query in queries for step in query.steps[:-1]]
        named = {word for _, step in steps for word in _WORD.findall(step.sql)}
        with (
            _stopped("loading the ledger", limits),
            shut_database(_tables(ledger, named), threads=limits.threads, memory_limit=limits.memory) as database,
            _interrupting(database, limits.timeout_s) as over,
        ):
            for query, step in steps:
                if _MENTIONED.search(step.sql):
                    raise QueryError(
                        f"{query.name}: step {step.name} takes a value; ask the query of the ledger itself"
                    )
                _make(database, step.sql, {}, self._done, over)
            self._tables = {name: database.table(name).to_arrow_table() for name in self._done}

    @contextmanager
    def asking(self) -> Iterator[Callable[[Query, Mapping[str, Value]], pa.Table]]:
        """As the function of that name. From any thread."""
        with _over(self._tables, self._limits, self._skew, self._done, uncounted) as ask:
            yield ask


@contextmanager
def _over(
    tables: Mapping[str, pa.Table], limits: Limits, skew: int, made: Mapping[str, _Made], counted: Counted
) -> Iterator[Callable[[Query, Mapping[str, Value]], pa.Table]]:
    """Queries over `tables`, of which `made` says how steps of queries made some."""
    done = dict(made)
    with (
        _stopped("loading the ledger", limits),
        shut_database(tables, threads=limits.threads, memory_limit=limits.memory) as database,
    ):

        def ask(query: Query, values: Mapping[str, Value]) -> pa.Table:
            with _stopped(query.name, limits):
                rows = _run(database, query, {**values, "skew_us": skew}, limits.timeout_s, done, counted)
            return _checked(query, _zoned(rows))

        yield ask


def _tables(ledger: Ledger, names: Container[str]) -> dict[str, pa.Table]:
    """Those of the ledger's tables, its gaps among them, that are in `names`."""
    tables = {
        name: _naive(expand_pages(rows) if name == "pages" else rows)
        for name, rows in ledger.tables.items()
        if name in names
    }
    return tables | ({_GAPS: _naive(gaps_table(ledger))} if _GAPS in names else {})


_Made = tuple[str, tuple[tuple[str, Value], ...]]
"""By which statement a table was made, and what was bound in it."""


@contextmanager
def _stopped(what: str, limits: Limits) -> Iterator[None]:
    try:
        yield
    except duckdb.InterruptException:
        words = f"{what} took longer than {limits.timeout_s:g} s; give a window, or more time (--timeout)"
        raise QueryStopped(words) from None
    except duckdb.OutOfMemoryException:
        words = f"{what} needs more than {limits.memory} of memory; give a window, or more (--memory)"
        raise QueryStopped(words) from None


def _run(
    database: duckdb.DuckDBPyConnection,
    query: Query,
    bound: Mapping[str, Value],
    timeout_s: float,
    done: dict[str, _Made],
    counted: Counted,
) -> pa.Table:
    with _interrupting(database, timeout_s) as over:
        for number, step in enumerate(query.steps[:-1]):
            counted(number, len(query.steps))
            _make(database, step.sql, bound, done, over)
        last = query.steps[-1].sql
        for name in _made(last):
            done.pop(name, None)
        return database.sql(_anew(last), params=_asked(last, bound)).to_arrow_table()


@contextmanager
def _interrupting(database: duckdb.DuckDBPyConnection, timeout_s: float) -> Iterator[threading.Event]:
    """Interrupts what runs when the time is over, and says that it is."""
    over = threading.Event()

    def stop() -> None:
        over.set()
        database.interrupt()

    timer = threading.Timer(timeout_s, stop)
    timer.start()
    try:
        yield over
    finally:
        timer.cancel()


def _make(
    database: duckdb.DuckDBPyConnection,
    sql: str,
    bound: Mapping[str, Value],
    done: dict[str, _Made],
    over: threading.Event,
) -> None:
    """One statement, but where all that it makes is there already."""
    asked = _asked(sql, bound)
    this = (sql, tuple(sorted(asked.items())))
    made = _made(sql)
    if not made or any(done.get(name) != this for name in made):
        database.execute(_anew(sql), asked)
        done.update(dict.fromkeys(made, this))
    if over.is_set():  # between two statements an interrupt stops nothing
        raise duckdb.InterruptException("over time")


def _made(sql: str) -> list[str]:
    return [name for _, name in _MADE.findall(sql)]


def _anew(sql: str) -> str:
    return _MADE.sub(r"CREATE OR REPLACE TEMP \1 \2", sql)


def _asked(sql: str, bound: Mapping[str, Value]) -> dict[str, Value]:
    bare = re.sub(r"--[^\n]*", "", sql)
    return {name: bound[name] for name in set(_MENTIONED.findall(bare))}


def _checked(query: Query, rows: pa.Table) -> pa.Table:
    if rows.column_names != list(query.columns):
        raise QueryError(
            f"{query.name}: its columns are {rows.column_names}, its front matter says {list(query.columns)}"
        )
    return rows


def _naive(table: pa.Table) -> pa.Table:
    return _recast(table, lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, _NAIVE)


def _zoned(table: pa.Table) -> pa.Table:
    return _recast(table, pa.types.is_timestamp, _UTC)


def _recast(table: pa.Table, wanted: Callable[[pa.DataType], bool], kind: pa.DataType) -> pa.Table:
    for index, field in enumerate(table.schema):
        if wanted(field.type):
            table = table.set_column(index, field.name, table[field.name].cast(pa.int64()).cast(kind))
    return table
