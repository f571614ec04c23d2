"""What an empty screen says of what lies nearest, and the keys that go there."""

from pathlib import Path

import httpx
import numpy as np
import pytest
from pilots import app_of, opened, until
from text_snapshot import screen_text

from console.core.nearest import Nearest, nearest_to, shifted
from console.core.places import Place
from console.core.source import LedgerSource
from console.core.time_range import Span, parse_range
from console.core.view import Mode, View
from console.web.app import create_app
from console.web.gate import Gate, Role

STORM = Path(__file__).parents[2] / "sample_logs" / "abort-storm" / "ledger"
NOW = 1_790_000_060_000_000
LATER = "2026-09-14T10:00:00Z..2026-09-14T10:00:10Z"
"""An hour after the end of the record."""
MOMENTS = (np.array([10, 20, 30]), np.array([10, 20, 30]))
LONG = (np.array([10, 40]), np.array([20, 50]))


@pytest.mark.parametrize(
    ("known", "span", "found"),
    [
        (MOMENTS, Span(11, 20), (10, 20)), (MOMENTS, Span(11, 21), None), (MOMENTS, Span(20, 21), None),
        (MOMENTS, Span(0, 10), (None, 10)), (MOMENTS, Span(31, 40), (30, None)), (MOMENTS, Span(31, None), (30, None)),
        (MOMENTS, Span(None, 5), (None, 10)), (LONG, Span(15, 16), None), (LONG, Span(21, 40), (20, 40)),
        ((np.array([], int), np.array([], int)), Span(0, 5), None),
    ],
)  # fmt: skip
def test_the_nearest_before_and_after_a_range_that_holds_nothing(known, span, found):
    near = nearest_to(span, known)
    assert (near and (near.before_us, near.after_us)) == found


def test_a_step_looks_as_long_with_the_nearest_in_it():
    near = Nearest(Span(1_000_000, 3_000_000), 400_000, 9_000_000)
    view = View(place=Place.EVENTS)
    for by, at in ((-1, 400_000), (1, 9_000_000)):
        there = shifted(view, near, by)
        span = there.range.resolve(NOW, lambda _: None)
        assert span.end_us - span.start_us == 2_000_000
        assert span.covers(at)
        assert (there.cursor_us, there.mode) == (at, Mode.PAUSED)
    assert shifted(view, Nearest(Span(5, None), None, None), 1) is None
    assert near.words("[", "]") == (
        "nearest: 1970-01-01 00:00:00.400Z, 600 ms before it ([ goes there) and "
        "1970-01-01 00:00:09.000Z, 6.0 s after it (] goes there)"
    )


async def test_an_empty_screen_in_the_terminal_names_it_and_the_key_goes_there(tmp_path):
    app = app_of(STORM, tmp_path, view=View(place=Place.EVENTS).with_range(parse_range(LATER)))
    async with app.run_test(size=(160, 48)) as pilot:
        await opened(pilot, app)
        for key in ("7", "3", "4", "5", "2"):
            await pilot.press(key)
            await until(pilot, lambda: "earest: 2026-09-14 09:0" in screen_text(app), f"what is nearest on {key}")
            assert app.desk.view.range.text == LATER
        await pilot.press("7")
        await until(pilot, lambda: "([ goes there)" in screen_text(app), "the key")
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "earest: 2026" not in screen_text(app), "events")
        span = app.looking().span
        assert span.end_us - span.start_us == 10_000_000
        assert span.covers(app.desk.full.data_us)


async def test_an_empty_page_of_the_browser_names_it_and_keeps_the_range(tmp_path):
    source = LedgerSource(STORM, now_us=lambda: NOW, engine="replay")
    web = create_app(source, Gate({"word": Role.VIEWER}), ("127.0.0.1",), tmp_path, patience_s=60.0)
    transport, headers = httpx.ASGITransport(web), {"authorization": "Bearer word"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        query = "from=2026-09-14T10:00:00Z&to=2026-09-14T10:00:10Z"
        for place in ("events", "pages", "held", "latency", "incidents"):
            answer = await client.get(f"/{place}?{query}")
            assert answer.status_code == 200, place
            assert 'id="nearest"' in answer.text, place
            assert "nearest: 2026-09-14 09:0" in answer.text
            assert LATER in answer.text
        moved = await client.get("/api/address", params={"at": f"/events?{query}", "action": "earlier"})
        there = moved.json()["address"]
        assert 'id="nearest"' not in (await client.get(there)).text
        assert 'id="nearest"' not in (await client.get("/events")).text
