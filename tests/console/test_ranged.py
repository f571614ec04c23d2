"""A range on Held, Latency and Overview: counted anew from the rows of the stretch, the same in both skins."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pilots import app_of, opened, until
from text_snapshot import screen_text

from console.core import ranged, rollup
from console.core.library_rows import library_rows
from console.core.looking import looking
from console.core.places import Place
from console.core.plain_screens import plain_screen
from console.core.ranged import in_range, stretch
from console.core.rollup import Rollup
from console.core.snapshot import OF_PREFILLS, Snapshot
from console.core.source import LedgerSource
from console.core.time_range import Span, parse_range, rfc3339
from console.core.view import View

STORM = Path(__file__).parents[2] / "sample_logs" / "abort-storm" / "ledger"
SECOND = 1_000_000
RANGE = "2026-09-14T09:00:30Z..2026-09-14T09:00:50Z"


@pytest.fixture(scope="module")
def storm() -> Snapshot:
    reading = LedgerSource(STORM, now_us=lambda: 1_790_000_000_000_000, engine="replay").read()
    assert isinstance(reading, Snapshot)
    return reading


def at(place, text=RANGE, **options):
    return View(place=place, **options).with_range(parse_range(text))


def micros(row):
    return pa.scalar(row["t"], pa.timestamp("us", tz="UTC")).value


def counted(storm, view):
    known, now = storm.rollup, storm.data_us
    return in_range(view.place, known, storm, looking(known, view, now))


def test_what_is_held_in_a_range_is_what_its_gauges_say(storm):
    gauges = [g | {"t": micros(g)} for g in storm.ledger.tables["gauges"].to_pylist()]
    view = at(Place.HELD)
    begin, end, bin_us = stretch(storm.rollup, looking(storm.rollup, view, storm.data_us).span)
    assert bin_us == SECOND
    for figure in counted(storm, view).held:
        mine = [g for g in gauges if (g["worker"], g["pool"]) == (figure.worker, figure.pool)]
        held = {g["t"] - (g["t"] - begin) % SECOND: g["held"] for g in mine if begin <= g["t"] < end}
        assert len(held) == 20  # one gauge a second
        assert dict(zip(figure.starts_us, figure.stacked["held"], strict=True)) == held


def test_a_forecast_and_the_share_stay_those_of_the_records_end(storm):
    whole, part = storm.rollup.held, counted(storm, at(Place.HELD)).held
    assert [(f.held, f.share, f.forecast, f.ends_us) for f in whole] == [
        (f.held, f.share, f.forecast, f.ends_us) for f in part
    ]
    assert [f.reaches_end for f in whole] == [True, True]
    assert [f.reaches_end for f in part] == [False, False]
    tail = counted(storm, at(Place.HELD, "2026-09-14T09:02:00Z..2026-09-14T09:02:30Z")).held
    assert [f.reaches_end for f in tail] == [True, True]


def test_a_range_makes_no_figure_again_that_it_does_not_change(storm, monkeypatch):
    known = storm.rollup
    anew = {}
    for place in (Place.OVERVIEW, Place.HELD, Place.LATENCY, Place.EVENTS):
        made = counted(storm, at(place))
        anew[place] = Rollup(made.path, made.head, made.tables)  # all of it worked out from its tables
        assert (made.held, made.latency, made.incidents, made.detectors, made.counts) == (
            anew[place].held, anew[place].latency, anew[place].incidents, anew[place].detectors, anew[place].counts
        )  # fmt: skip
        assert [f.course for f in made.held] == [f.course for f in anew[place].held]
    for slow in ("held_figure", "incidents_of", "detectors", "unpacked", "name_owners"):
        monkeypatch.setattr(rollup, slow, lambda *_: pytest.fail("made again"))
    monkeypatch.setitem(storm.ledger.tables, "gauges", None)
    later = "2026-09-14T09:00:31Z..2026-09-14T09:00:53Z"
    for place in (Place.OVERVIEW, Place.HELD, Place.LATENCY, Place.EVENTS):
        made = counted(storm, at(place, later))
        assert made is not known
        assert made.held and made.incidents and made.detectors and made.owners and made.strip


def test_a_range_looks_at_its_own_gauges_only(storm, monkeypatch):
    view, looked_at = at(Place.HELD, "2026-09-14T09:00:32Z..2026-09-14T09:00:54Z"), []
    series = ranged.held_series
    monkeypatch.setattr(ranged, "held_series", lambda rows, *more: looked_at.append(rows["t"]) or series(rows, *more))
    begin, end, _ = stretch(storm.rollup, looking(storm.rollup, view, storm.data_us).span)
    counted(storm, view)
    every = pc.cast(storm.ledger.tables["gauges"]["t"], pa.int64()).to_pylist()
    (times,) = looked_at
    assert pc.cast(times, pa.int64()).to_pylist() == sorted(t for t in every if begin <= t < end)


def test_a_range_without_a_gauge_has_its_pools_still(storm):
    quiet = counted(storm, at(Place.HELD, "2026-09-14T09:00:30.2Z..2026-09-14T09:00:30.4Z")).held
    assert [(f.worker, f.pool) for f in quiet] == [(f.worker, f.pool) for f in storm.rollup.held]


def test_prefill_times_of_a_range_are_those_of_its_requests(storm):
    view = at(Place.LATENCY)
    span = Span(*stretch(storm.rollup, looking(storm.rollup, view, storm.data_us).span)[:2])
    requests = storm.ledger.tables["requests"].to_pylist()
    prefill = {(r["worker"], r["epoch"], r["req"]): micros(r) for r in requests
               if r["op"] == "receive" and r["worker"].startswith("prefill")}  # fmt: skip
    timed = {(r["worker"], r["epoch"], r["req"]) for r in requests if r["op"] == "first_token"}
    inside = sum(key in timed and span.covers(t) for key, t in prefill.items())
    lengths = counted(storm, view).latency.lengths
    assert sum(length.requests for length in lengths) == inside > 0
    assert inside < sum(length.requests for length in storm.rollup.latency.lengths)
    assert all(span.covers(t) for length in lengths for t in length.starts_us)


def test_a_range_is_counted_once(storm):
    first, again = counted(storm, at(Place.LATENCY)), counted(storm, at(Place.LATENCY))
    assert first.tables["prefill-times"] is again.tables["prefill-times"]


@pytest.mark.parametrize("text", [RANGE, "2026-09-14T09:01:00Z..2026-09-14T09:02:00Z", "2026-09-14T09:00:07.5Z..now"])
def test_latency_of_a_range_is_what_the_library_says_of_it(storm, text):
    view = at(Place.LATENCY, text)
    begin, end, bin_us = stretch(storm.rollup, looking(storm.rollup, view, storm.data_us).span)
    given = {"from": rfc3339(begin), "to": rfc3339(end), "bucket": f"{bin_us // SECOND}s"}
    said = library_rows(storm.ledger, storm.judged.settled, OF_PREFILLS, given)
    found = counted(storm, view).tables
    assert all(found[name].equals(said[name]) and len(said[name]) for name in OF_PREFILLS)


def test_a_range_that_moves_with_the_time_is_not_counted_each_second(storm):
    known = storm.rollup
    long = [stretch(known, Span(known.first_us + 1000 + n * SECOND, None)) for n in range(10)]
    assert len(set(long)) <= 2


def test_events_of_an_early_range_are_found(storm):
    early = "2026-09-14T09:00:00Z..2026-09-14T09:00:03Z"
    rows = counted(storm, at(Place.OVERVIEW, early)).tables["events"]
    t = pc.cast(rows["t"], pa.int64())
    assert len(rows) == 50
    assert (
        pc.max(t).as_py()
        < storm.rollup.first_us + 3 * SECOND
        < pc.min(pc.cast(storm.rollup.tables["events"]["t"], pa.int64())).as_py()
    )
    known, now = storm.rollup, storm.data_us
    lines = list(plain_screen(storm, looking(known, at(Place.EVENTS, early), now), (), now))
    assert len(lines) == 51


@pytest.mark.parametrize(
    ("place", "shown"), [(Place.HELD, "09:00:30Z..09:00:50Z"), (Place.LATENCY, "09:00:30Z..09:00:50Z")]
)
async def test_the_terminal_draws_the_range_and_says_so(place, shown, tmp_path):
    app = app_of(STORM, tmp_path, view=at(place))
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, app)
        await until(pilot, lambda: shown in screen_text(app), "the range")
        assert "of the whole record" not in screen_text(app)
