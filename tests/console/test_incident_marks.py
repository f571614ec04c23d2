"""Where incidents were first seen, on charts of time in both skins."""

from dataclasses import replace
from pathlib import Path

import pytest
from pilots import app_of, opened
from text_snapshot import screen_lines

from console.core.marks import Severity
from console.core.places import Place
from console.core.source import LedgerSource
from console.core.view import View
from console.tui.incident_marks import incident_line
from console.tui.palette import palette_of
from console.web.incident_marks import MOST_MARKS, with_incidents

STORM = Path(__file__).parents[2] / "sample_logs" / "abort-storm" / "ledger"
PALETTE = palette_of("kvwitness-dark")


def seen(incident, severity, at_us, number=0):
    return replace(incident, severity=severity, first_seen_us=at_us, id=f"I-{number:04}")


def test_the_gravest_of_a_column_is_drawn_and_nothing_outside(finished):
    one = finished.incidents[0]
    several = [
        seen(one, Severity.P4, 10),
        seen(one, Severity.P1, 11),
        seen(one, Severity.P2, 99),
        seen(one, Severity.P1, 101),
    ]
    line = incident_line([*several, seen(one, Severity.P1, None)], 0, 100, 20, 11, PALETTE)
    assert line.plain == "  incident " + "  ▲" + 16 * " " + "◆"
    assert incident_line(several[3:], 0, 100, 20, 11, PALETTE) is None


@pytest.mark.parametrize("place", [Place.HELD, Place.LATENCY])
async def test_charts_of_the_terminal_have_them(place, tmp_path):
    app = app_of(STORM, tmp_path, view=View(place=place))
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, app)
        await pilot.pause()
        (line,) = [line for line in screen_lines(app) if line.lstrip().startswith("incident ")]
        assert set(line.split("incident", 1)[1]) & set("▲◆●·")


def test_charts_of_the_browser_have_the_gravest_of_the_range_and_count_the_rest(finished):
    one = finished.incidents[0]
    many = [seen(one, Severity.P2, 1_790_000_000_000_000 + n, n) for n in range(MOST_MARKS + 3)]
    figure = {"data": [], "layout": {"xaxis": {}, "yaxis": {}, "xaxis2": {}, "yaxis2": {}}}
    marked = with_incidents(figure, many, (1_790_000_000_000_001, None), "dark")["layout"]
    assert len(marked["shapes"]) == len(marked["annotations"]) == 2 * MOST_MARKS
    assert {note["xref"] for note in marked["annotations"]} == {"x", "x2"}
    assert [note["name"] for note in marked["annotations"][::2]] == [i.id for i in many[1 : MOST_MARKS + 1]]
    assert marked["annotations"][-1]["hovertext"].endswith("and 2 more")
    assert figure["layout"].keys() == {"xaxis", "yaxis", "xaxis2", "yaxis2"}


def test_the_storm_has_incidents_to_mark(tmp_path):
    reading = LedgerSource(STORM, now_us=lambda: 1_790_000_000_000_000, engine="replay").read()
    assert any(i.first_seen_us is not None for i in reading.incidents)
