"""The overview obeys the view; what is exported is what is seen, under the names that may be seen."""

import csv
import io
import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from scripted_ledger import ACME, BRIO

from console.core.export import ExportError, envelope, export
from console.core.looking import looking
from console.core.marks import Severity
from console.core.overview import overview
from console.core.places import Place
from console.core.redaction import HIDDEN, Redaction
from console.core.sheet import shown
from console.core.time_range import Span
from console.core.triage import Act, Entry, State
from console.core.view import Sort, View
from forensics.pseudonyms import CaseKey

NOW = 1_790_000_100_000_000
EVERYTHING = Span()
KEY = CaseKey(b"a key of sixteen bytes and more")


def test_the_overview_shows_what_is_open_and_counts_it(finished):
    rollup = finished.rollup
    whole = overview(rollup, looking(rollup, View(), NOW), (), NOW)
    assert [stood.incident for stood in whole.incidents] == list(rollup.incidents)
    assert whole.by_severity[Severity.P1] == 2
    assert len(whole.events.rows) == 50
    first = rollup.incidents[0]
    acked = Entry(first.id, Act.ACK, "kl", NOW, seen_us=first.last_seen_us)
    left = overview(rollup, looking(rollup, View(), NOW), (acked,), NOW)
    assert [stood.incident for stood in left.incidents] == list(rollup.incidents[1:])
    assert all(stood.standing.state is State.OPEN for stood in left.incidents)


def test_one_filter_holds_for_every_panel(finished):
    view = View(filter="cause:M3 worker:decode-0")
    seen = overview(finished.rollup, looking(finished.rollup, view, NOW), (), NOW)
    assert [stood.incident.cause for stood in seen.incidents] == ["M3"]
    assert seen.left.words == "1 of 2, 1 hidden, here without worker:decode-0"
    assert set(seen.events.rows["worker"].to_pylist()) == {"decode-0"}
    assert [term.text for term in seen.events.unused] == ["cause:M3"]
    rows = sum(table.num_rows for table in finished.ledger.tables.values())
    assert (seen.events.total, seen.events.left_out) == (rows, rows - 50)


def exported(finished, fmt: str, view: View, redaction: Redaction | None = None, table: str = "incidents"):
    rollup = finished.rollup
    sheet = rollup.sheets[table]
    left = shown(sheet, view, EVERYTHING, NOW)
    return left, export(rollup, sheet, left, view, fmt, redaction or Redaction())


VIEW = View(filter="severity:critical", sort=Sort("first", True))


@pytest.mark.parametrize("fmt", ["csv", "jsonl", "parquet", "md"])
def test_an_export_holds_the_rows_that_are_seen_in_their_order(finished, fmt):
    left, file = exported(finished, fmt, VIEW)
    ids = left.rows["id"].to_pylist()
    assert ids == [i.id for i in sorted(finished.incidents, key=lambda i: -i.first_seen_us)]
    text = "" if fmt == "parquet" else file.content.decode()
    if fmt == "csv":
        assert [row["id"] for row in csv.DictReader(io.StringIO(text))] == ids
    elif fmt == "jsonl":
        assert [json.loads(line)["id"] for line in text.splitlines()] == ids
    elif fmt == "parquet":
        table = pq.read_table(io.BytesIO(file.content))
        assert table["id"].to_pylist() == ids
        about = json.loads(table.schema.metadata[b"kvwitness"])
        assert (about["view"], about["of"], about["names"]) == (
            "/overview?q=severity:critical&sort=-first",
            2,
            "as recorded",
        )
    else:
        assert [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines()[2:4]] == ids
        assert "2 of 2" in text.splitlines()[-1]
    assert file.name == f"{finished.name}-incidents.{fmt}"


def test_a_format_that_there_is_not_is_refused(finished):
    with pytest.raises(ExportError, match="csv, parquet"):
        exported(finished, "xlsx", View())


@pytest.mark.parametrize("table", ["incidents", "detections", "latency", "holders", "events"])
@pytest.mark.parametrize("redaction", [Redaction(KEY), Redaction(hide=True)], ids=["case", "hidden"])
def test_no_name_gets_out_of_a_covered_table(finished, table, redaction):
    names = [ACME, BRIO, "resp-"]
    _, open_file = exported(finished, "jsonl", View(), table=table)
    _, covered = exported(finished, "jsonl", View(), redaction, table)
    assert table in ("holders", "latency") or any(name.encode() in open_file.content for name in names)
    assert not any(name.encode() in covered.content for name in names)


def test_a_pseudonym_is_the_cases_everywhere_and_leads_back_by_its_key(finished):
    redaction = Redaction(KEY)
    incident = finished.incidents[0]
    shown_name = redaction.request(incident.donors[0])
    assert redaction.cover(finished.rollup.tables["incidents"])["donors"].to_pylist()[0] == [shown_name]
    assert KEY.reveal(finished.ledger, [shown_name]) == {shown_name: incident.donors[0]}
    assert (redaction.tenant(None), Redaction(hide=True).tenant(ACME), Redaction().tenant(ACME)) == (None, HIDDEN, ACME)
    assert [r.words for r in (Redaction(), redaction, replace(redaction, hide=True))] == [
        "",
        "names of this case",
        "names hidden",
    ]


def test_a_covered_file_says_nothing_of_names_in_its_link(finished):
    view = View(place=Place.INCIDENTS, rid="resp-b2", filter="tenant:t-acme", title="about resp-b2")
    known, sheet = finished.rollup, finished.rollup.sheets["incidents"]
    left = shown(sheet, View(), EVERYTHING, NOW)
    for redaction, told in ((Redaction(), True), (Redaction(hide=True), False), (Redaction(KEY), False)):
        about = envelope(known, sheet, left, view, redaction)
        assert [("resp-b2" in about["view"]), ("acme" in about["view"])] == [told, told]
        assert ("resp-b2" in export(known, sheet, left, view, "md", redaction).content.decode()) is told
