"""Several ledgers as one: the merged lists are the sorted unions of the lists, in whatever pages, and nothing is confused."""

from dataclasses import replace
from pathlib import Path
from time import process_time

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_events import made

from console.core.desk import Desk
from console.core.event_window import EventWindows, Looked, words_of
from console.core.events import PAGE, EventKey, Events, key_at, keys_of
from console.core.filter_language import parse_filter
from console.core.ledger_names import ledger_names
from console.core.looking import incident_keys, incidents_left, left_of, looking
from console.core.merged import Merged, merged_rollup, said_of
from console.core.merged_events import MergedEvents
from console.core.snapshot import Snapshot
from console.core.source import LedgerSource
from console.core.time_range import Span
from console.core.triage import State, TriageBook, standing
from console.core.view import Mode, View
from engine.ledger.schema import TABLE_NAMES, TABLES

SAMPLES = Path(__file__).parents[2] / "sample_logs"
NOW = 1_790_000_060_000_000
NAMES = ("prod-a", "prod-b", "m")
EVENT = st.tuples(st.integers(0, 5), st.sampled_from(["decode-0", "prefill-0"]), st.sampled_from(["receive", "finish"]))


def events_of(ledger, rows) -> Events:
    """The events of a ledger whose `requests` are (time, worker, op), and whose other tables are empty."""
    empty = {n: TABLES[n].empty_table().add_column(0, "worker", pa.array([], pa.string())) for n in TABLE_NAMES}
    listed = [{"t": t, "worker": w, "epoch": 1, "seq": seq, "op": op} for seq, (t, w, op) in enumerate(rows, start=1)]
    requests = pa.Table.from_pylist(listed, empty["requests"].schema)
    return Events(replace(ledger, tables=empty | {"requests": requests}))


def in_pages(events: MergedEvents, text: str, span: Span, n: int, *, forward: bool) -> list[EventKey]:
    wanted, found, key = parse_filter(text), [], None
    while True:
        page = (events.after if forward else events.before)(key, wanted, span, 0, n)
        keys = list(keys_of(page.rows))
        assert len(keys) <= n
        found = found + keys if forward else keys + found
        key = page.later if forward else page.earlier
        if key is None:
            return found


FILTERS = (
    "",
    "op:receive",
    "source:prod-a",
    "-source:prod-a",
    "source:prod-a,m op:finish",
    "prod",
    "-prod-b",
    "source:x",
    "decode",
)


@settings(max_examples=40, deadline=None)
@given(
    ledgers=st.dictionaries(st.sampled_from(NAMES), st.lists(EVENT, max_size=7), min_size=1),
    text=st.sampled_from(FILTERS), n=st.integers(1, 4), bounds=st.tuples(st.integers(0, 3), st.integers(3, 6)),
)  # fmt: skip
def test_pages_of_merged_events_are_the_sorted_union_of_the_ledgers_events(finished, ledgers, text, n, bounds):
    parts, span = {name: events_of(finished.ledger, rows) for name, rows in ledgers.items()}, Span(*bounds)
    merged = MergedEvents(parts)
    union = sorted(
        EventKey(t, worker, 1, seq, source=name)
        for name, rows in ledgers.items()
        for seq, (t, worker, op) in enumerate(rows, start=1)
        if bounds[0] <= t < bounds[1] and left_by(text, name, worker, op)
    )
    assert in_pages(merged, text, span, n, forward=True) == union
    assert in_pages(merged, text, span, n, forward=False) == union
    parts_of_all = list(merged.all(parse_filter(text), span, 0))
    assert [key for part in parts_of_all for key in keys_of(part)] == union
    whole = merged.after(None, parse_filter(text), span, 0, 1000)
    inside = sum(bounds[0] <= t < bounds[1] for rows in ledgers.values() for t, _, _ in rows)
    assert (whole.total, whole.hidden, whole.earlier, whole.later) == (inside, inside - len(union), None, None)


def left_by(text: str, source: str, worker: str, op: str) -> bool:
    """What the filters of the law above mean, said once more."""
    return {
        "": True, "op:receive": op == "receive", "source:prod-a": source == "prod-a", "-source:prod-a": source != "prod-a",
        "source:prod-a,m op:finish": source in ("prod-a", "m") and op == "finish", "prod": "prod" in source,
        "-prod-b": source != "prod-b", "source:x": False, "decode": worker == "decode-0",
    }[text]  # fmt: skip


@pytest.fixture(scope="module")
def samples() -> dict[str, Snapshot]:
    """Two recorded ledgers."""
    paths = [SAMPLES / name / "ledger" for name in ("prefix-cross-tenant", "abort-race")]
    read = [LedgerSource(path, now_us=lambda: NOW, engine="replay").read() for path in paths]
    return dict(zip(ledger_names(paths), read, strict=True))


@pytest.fixture(scope="module")
def merged(samples) -> Merged:
    return Merged({name: snapshot.rollup for name, snapshot in samples.items()}, samples)


def test_incidents_of_recorded_ledgers_stand_together_the_gravest_first_each_with_its_ledger(samples, merged):
    known, at = merged.rollup, looking(merged.rollup, View(), NOW)
    union = {f"{name}:{incident.id}" for name, snapshot in samples.items() for incident in snapshot.incidents}
    assert {incident.key for incident in known.incidents} == union
    assert [i.severity for i in known.incidents] == sorted(i.severity for i in known.incidents)
    assert incident_keys(left_of(known, "incidents", at).rows) == [incident.key for incident in known.incidents]
    for name, snapshot in samples.items():  # none changes its place among its own
        mine = [incident.id for incident in known.incidents if incident.source == name]
        assert mine == [incident.id for incident in snapshot.incidents]
        only = looking(known, View(filter=f"source:{name}"), NOW)
        assert [i.id for i in incidents_left(known, only)] == mine
    assert known.responses == sum(snapshot.rollup.responses for snapshot in samples.values())


def test_events_of_recorded_ledgers_slide_as_one_list_with_their_verdicts(samples, merged):
    windows, looked = EventWindows(merged), Looked(parse_filter(""), Span(), NOW)
    window, seen = windows.first(looked), []
    seen = list(keys_of(window.rows))
    while window.later is not None:
        window = windows.down(window, looked)
        seen += [key for key in keys_of(window.rows) if key > seen[-1]]
    union = sorted(
        replace(key, source=name)
        for name, snapshot in samples.items()
        for key in keys_of(snapshot.events.after(None, parse_filter(""), Span(), 0, len(snapshot.events)).rows)
    )
    assert seen == union
    victim = merged.rollup.incidents[0]
    found = windows.last(Looked(parse_filter(f"source:{victim.source} rid:{victim.rids[0]}"), Span(), NOW))
    judged = {row["rid"]: row["verdict"] for row in samples[victim.source].verdicts.to_pylist()}
    assert {found.verdict_of(row) for row in found.rows.to_pylist()} == {judged[victim.rids[0]]}
    assert "hidden by the filter" in words_of(found)
    assert found.place_of(key_at(found.rows, 1)) == 1


def test_one_id_in_two_ledgers_is_two_incidents_and_each_has_its_own_book(finished, tmp_path):
    known = merged_rollup({"a": finished.rollup, "b": finished.rollup})
    twice = finished.incidents[0].id
    assert [i.key for i in known.incidents if i.id == twice] == [f"a:{twice}", f"b:{twice}"]
    assert known.incident(twice) is None
    chosen = known.incident(f"b:{twice}")
    assert (chosen.source, known.of(chosen)) == ("b", finished.rollup)
    book = TriageBook(tmp_path / "state", tmp_path / "b-ledger", who="kl", now_us=lambda: NOW)
    book.ack(finished.incidents[0])
    said = said_of("b", book.entries())
    states = {i.source: standing(i, said, NOW).state for i in known.incidents if i.id == twice}
    assert states == {"a": State.OPEN, "b": State.ACKED}


def test_a_paused_desk_keeps_what_it_shows_of_several_ledgers_and_counts_what_is_newer(merged, samples):
    first = next(iter(samples))
    desk = Desk().offer_merged(Merged({first: samples[first].rollup}, {first: samples[first]}))
    assert (desk.mode, desk.rollup.rows) == (Mode.FINISHED, samples[first].rollup.rows)
    desk = replace(desk, view=replace(desk.view, mode=Mode.PAUSED)).offer_merged(merged)
    assert desk.rollup.rows == samples[first].rollup.rows
    assert desk.newer_rows == merged.rollup.rows - desk.rollup.rows


def test_no_ledger_is_called_as_all_of_them_are():
    assert ledger_names([Path("/x/all"), Path("/x/b")]) == ("x/all", "b")


def test_a_page_of_two_ledgers_costs_the_same_in_records_that_are_twenty_times_as_long():
    costs = {}
    for rows in (20_000, 400_000):
        merged = MergedEvents({"a": made(rows), "b": made(rows)})
        assert len(merged) == 2 * rows
        key = merged.after(None, parse_filter(""), Span(rows * 500, None), 0, 1).later
        taken = []
        for _ in range(7):
            started = process_time()
            page = merged.before(key, parse_filter(""), Span(), 0)
            taken.append(process_time() - started)
        assert len(page.rows) == PAGE
        costs[rows] = sorted(taken)[len(taken) // 2]
    assert costs[400_000] < 5 * costs[20_000] + 0.02
