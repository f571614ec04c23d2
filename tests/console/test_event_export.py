"""Events as files: all of range and filter, however few of them a screen holds or a step of a search looks at."""

import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pilots import around, opened, toasts, typed, until
from scripted_ledger import ACME

import console.core.events as events_module
import console.tui.table_actions as table_actions
from console.core.event_export import export_events
from console.core.event_window import Looked
from console.core.events import Events
from console.core.filter_language import parse_filter
from console.core.places import Place
from console.core.redaction import HIDDEN, Redaction
from console.core.source import LedgerSource
from console.core.time_range import Span
from console.core.view import View
from console.tui.app import ConsoleApp
from console.tui.prompt_screen import PromptScreen

NOW = 1_790_000_100_000_000


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch):
    """The record is longer than what one step searches."""
    monkeypatch.setattr(events_module, "_BLOCK", 4)
    monkeypatch.setattr(events_module, "MAX_SEARCHED", 8)


def written(finished, fmt: str, text: str = "", span: Span | None = None, redaction: Redaction | None = None):
    out = io.BytesIO()
    view, looked = View(place=Place.EVENTS, filter=text), Looked(parse_filter(text), span or Span(), NOW)
    done = export_events(finished.rollup, Events(finished.ledger), looked, view, fmt, redaction or Redaction(), out)
    return done, out.getvalue()


def rows_of(fmt: str, content: bytes) -> list[str]:
    """Worker and seq of each row."""
    if fmt == "parquet":
        rows = pq.read_table(io.BytesIO(content)).to_pylist()
    elif fmt == "csv":
        rows = list(csv.DictReader(io.StringIO(content.decode())))
    elif fmt == "jsonl":
        rows = [json.loads(line) for line in content.decode().splitlines()]
    else:
        cells = [line.strip("| ").split(" | ") for line in content.decode().splitlines() if line.startswith("| ")]
        rows = [dict(zip(cells[0], line, strict=False)) for line in cells[1:]]
    return [f"{row['worker']} {row['seq']}" for row in rows]


@pytest.mark.parametrize("fmt", ["csv", "jsonl", "parquet", "md"])
def test_every_event_is_in_the_file_in_time(finished, fmt):
    tables = finished.ledger.tables.values()
    done, content = written(finished, fmt)
    every = pa.concat_tables([table.select(["t", "worker", "epoch", "seq"]) for table in tables])
    every = every.sort_by([(name, "ascending") for name in every.column_names]).to_pylist()
    assert rows_of(fmt, content) == [f"{row['worker']} {row['seq']}" for row in every]
    assert (done.rows, done.total, done.hidden, done.outside) == (len(every), len(every), 0, 0)


def test_a_filter_finds_what_lies_far_back_and_the_file_says_what_it_left_out(finished):
    first = min(row["t"] for row in Events(finished.ledger).all(parse_filter(""), Span(), NOW).__next__().to_pylist())
    span = Span(None, finished.first_us + (finished.data_us - finished.first_us) // 2)
    done, content = written(finished, "parquet", f"tenant:{ACME} op:receive cause:M1", span)
    table = pq.read_table(io.BytesIO(content))
    wanted = [row for row in finished.requests.values() if row["tenant"] == ACME and row["t"] < span.end_us]
    assert len(table) == len(wanted) == done.rows > 0
    assert table["t"][0].as_py() >= first
    about = json.loads(table.schema.metadata[b"kvwitness"])
    total = sum(len(table) for table in finished.ledger.tables.values())
    assert about["rows"] + about["hidden"] + about["outside"] == about["of"] == total
    assert about["left_out"] == 0
    assert about["outside"] > 0
    assert about["view"].startswith("/events?")
    assert "here without cause:M1" in done.words
    assert (
        written(finished, "md", "op:nothing")[1]
        .decode()
        .splitlines()[-1]
        .startswith(f"events of {finished.name}, 0 of {total:,}")
    )


def test_names_are_covered_in_every_part(finished):
    _, content = written(finished, "csv", redaction=Redaction(hide=True))
    assert {row["tenant"] for row in csv.DictReader(io.StringIO(content.decode()))} == {"", HIDDEN}
    assert ACME.encode() not in content


async def test_e_on_the_events_screen_takes_them_all_and_no_broken_file_stays(
    finished, finished_ledger, tmp_path, monkeypatch
):
    source = LedgerSource(finished_ledger, now_us=lambda: NOW, engine="replay")
    app = ConsoleApp(source, View(place=Place.EVENTS, filter="op:receive"), around=around(tmp_path))
    exports = tmp_path / "exports"
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await opened(pilot, app)

        async def export() -> None:
            await pilot.press("e")
            await until(pilot, lambda: isinstance(app.screen, PromptScreen), "the line")
            await typed(pilot, "csv")
            await pilot.press("enter")

        await export()
        await until(pilot, lambda: "Exported" in {n.title for n in app._notifications}, "the words")
        (path,) = exports.iterdir()
        receives = {f"{worker} {row['seq']}" for (worker, _, _), row in finished.requests.items()}
        assert set(rows_of("csv", path.read_bytes())) == receives
        assert f"{len(receives)} of " in toasts(app)
        monkeypatch.setattr(table_actions, "export_events", lambda *_: 1 / 0)
        await export()
        await until(pilot, lambda: "Not done" in {n.title for n in app._notifications}, "the refusal")
        assert list(exports.iterdir()) == [path]
