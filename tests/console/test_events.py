"""Events of all tables in time, page by page: nothing twice, nothing left out, and bounded work."""

from time import process_time

import numpy as np
import pyarrow as pa
import pytest

from console.core.events import MAX_SEARCHED, PAGE, Events
from console.core.filter_language import parse_filter
from console.core.time_range import Span
from engine.ledger.reader import Ledger
from engine.ledger.schema import TABLES

EVERYTHING = Span()
NO_FILTER = parse_filter("")


def keys(rows: pa.Table) -> list[tuple]:
    return [(r["t"], r["worker"], r["epoch"], r["seq"]) for r in rows.to_pylist()]


def in_pages(events: Events, text: str, n: int, *, forward: bool) -> list[tuple]:
    wanted, found, key = parse_filter(text), [], None
    while True:
        page = (events.after if forward else events.before)(key, wanted, EVERYTHING, 0, n)
        assert len(page.rows) <= n
        found = found + keys(page.rows) if forward else keys(page.rows) + found
        key = page.later if forward else page.earlier
        if key is None:
            return found


@pytest.fixture(scope="module")
def events(finished) -> Events:
    return Events(finished.ledger)


@pytest.fixture(scope="session")
def finished(finished_ledger):
    from console.core.source import LedgerSource

    return LedgerSource(finished_ledger, now_us=lambda: 1_790_000_100_000_000).read()


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("n", [7, 64, 10_000])
def test_pages_hold_every_row_of_the_ledger_once_and_in_order(events, finished, n, forward):
    found = in_pages(events, "", n, forward=forward)
    assert found == sorted(found)
    assert len(found) == len(set(found)) == sum(table.num_rows for table in finished.ledger.tables.values())


def test_rows_are_picked_of_one_piece_and_without_what_no_event_shows(events, finished):
    assert max(table["worker"].num_chunks for table in finished.ledger.tables.values()) > 1
    picked_of = [column for table in events._tables for column in table.columns]
    assert {column.num_chunks for column in picked_of} <= {0, 1}
    assert not any(pa.types.is_list(column.type) for column in picked_of)


@pytest.mark.parametrize("text", ["table:pages", "rid:resp-b1 -op:bind", "reserve", "tenant:*brio* pages>=4"])
def test_a_filter_leaves_the_same_rows_whichever_way_one_goes(events, text):
    there, back = (in_pages(events, text, 3, forward=forward) for forward in (True, False))
    assert there == back
    assert there
    whole = events.after(None, parse_filter(text), EVERYTHING, 0, 10_000)
    assert (keys(whole.rows), whole.hidden) == (there, len(events) - len(there))


def test_a_row_has_the_request_and_the_tenant_that_its_worker_knew(events):
    page = events.after(None, parse_filter("table:pages op:reserve worker:decode-0 rid:resp-b1"), EVERYTHING, 0)
    (row,) = page.rows.to_pylist()
    assert (row["rid"], row["tenant"], row["pages"]) == ("resp-b1", "t-brio000002", 12)


def test_a_range_bounds_what_is_there_and_says_where_it_goes_on(events):
    every = events.after(None, NO_FILTER, EVERYTHING, 0, 10_000).rows["t"].cast(pa.int64()).to_pylist()
    span = Span(every[10], every[-10])
    inside = [t for t in every if span.covers(t)]
    page = events.before(None, NO_FILTER, span, 0, 5)
    assert (page.total, page.rows["t"].cast(pa.int64()).to_pylist(), page.later) == (len(inside), inside[-5:], None)
    assert events.before(page.earlier, NO_FILTER, span, 0, 5).later == page.earlier
    assert len(events.after(None, NO_FILTER, Span(every[-1] + 1, None), 0).rows) == 0


def test_an_empty_ledger_has_no_events(finished):
    empty = {name: table.slice(0, 0) for name, table in finished.ledger.tables.items()}
    page = Events(Ledger(finished.ledger.path, empty, (), (), ())).before(None, NO_FILTER, EVERYTHING, 0)
    assert (len(page.rows), page.earlier, page.later, page.total) == (0, None, None, 0)


def made(rows: int) -> Events:
    """A ledger of one worker with so many `pages` rows, made in memory."""
    schema = TABLES["pages"]
    columns = {field.name: pa.nulls(rows, field.type) for field in schema}
    seqs = np.arange(1, rows + 1)
    columns |= {
        "epoch": pa.array(np.ones(rows, np.int32)), "seq": pa.array(seqs), "t": pa.array(seqs * 1000).cast(schema.field("t").type),
        "op": pa.DictionaryArray.from_arrays(pa.array(seqs % 2, pa.int32()), ["reserve", "free"]).cast(pa.string()),
        "req": pa.array(seqs // 4), "n": pa.array(seqs % 64).cast(schema.field("n").type),
    }  # fmt: skip
    pages = pa.table({"worker": pa.repeat("decode-0", rows), **columns})
    tables = {
        name: pages if name == "pages" else pa.table({"worker": pa.array([], pa.string()), **{f.name: pa.nulls(0, f.type) for f in schema}})
        for name, schema in TABLES.items()
    }  # fmt: skip
    return Events(Ledger(None, tables, (), (), ()))


def test_a_page_costs_the_same_in_a_record_that_is_fifty_times_as_long():
    costs = {}
    for rows in (20_000, 1_000_000):
        events = made(rows)
        assert len(events) == rows
        key = events.after(None, NO_FILTER, Span(rows * 500, None), 0, 1).later
        taken = []
        for text in ("", "op:free", "nothing-like-this"):
            for _ in range(5):
                started = process_time()
                page = events.before(key, parse_filter(text), EVERYTHING, 0)
                taken.append(process_time() - started)
            assert len(page.rows) == (0 if text.startswith("nothing") else PAGE)
            assert page.hidden + len(page.rows) <= MAX_SEARCHED
        costs[rows] = sorted(taken)[len(taken) // 2]
    assert costs[1_000_000] < 5 * costs[20_000] + 0.02
