"""Charts of characters, moves in time, completions, what is tried out: pure functions with known values."""

from dataclasses import replace

import pytest

from console.core.filter_completion import completions
from console.core.looking import fields_of, left_of, looking
from console.core.time_moves import extent, moment_in, pointed, stepped, zoomed
from console.core.time_range import ALL, BadRange, Span, TimeRange
from console.core.view import Cue, View
from console.core.what_if import WhatIfError, what_if_of, what_if_words, with_what_if_of
from console.tui.charts import blocks, braille, course, layered, placed, resampled
from console.tui.lines import view_line
from console.tui.palette import palette_of

NOW = 1_790_000_060_000_000


def test_a_column_holds_the_highest_of_what_falls_into_it():
    assert resampled([0, 9, 0, 0, 1, 0], 3) == [9, 0, 1]
    assert resampled([5], 3) == [5, 5, 5]
    assert resampled([], 2) == [0, 0]


def test_blocks_never_draw_something_as_nothing():
    assert blocks([0, 1, 50, 100], 2, 100) == ["   █", " ▁██"]
    assert blocks([0.001], 1, 100) == ["▁"]
    assert blocks([1], 1, 0) == [" "]


def test_layers_stand_on_one_another():
    assert layered([[2, 0], [2, 4]], 4, 4, "█▓") == ["▓▓", "▓▓", "█▓", "█▓"]
    assert layered([[0.01], [0]], 3, 100, "█▓") == [" ", " ", "█"]


def test_a_braille_line_joins_its_values_and_leaves_gaps():
    assert braille([0, 1], 1, 0, 1) == ["⣸"]
    assert braille([None, None, 1, 1], 1, 0, 1) == [" ⠉"]


def test_points_fall_into_their_columns():
    assert placed([(0, 5), (1, 3), (9, 7)], 5, 0, 10) == [3, None, None, None, 7]
    assert course([0, 9], [0, 10], 3) == [0, 5, 10]


def test_moves_stay_within_the_record(finished):
    known = finished.rollup
    whole = extent(known, Span())
    assert whole == (known.first_us, known.data_us)
    assert extent(known, Span(known.data_us + 1, None)) is None
    view = stepped(View(), whole, -1)
    assert view.cursor_us == whole[1] - (whole[1] - whole[0]) // 20
    assert stepped(view, whole, 9).cursor_us == whole[1]
    assert pointed(View(), whole, 0).cursor_us == whole[0]


def test_a_zoom_is_around_what_is_pointed_at_and_all_the_way_out_follows(finished):
    known = finished.rollup
    whole = extent(known, Span())
    at = whole[0] + 100_000
    near = zoomed(replace(View(), cursor_us=at), known, whole, 0.1)
    start, end = (near.range.resolve(NOW, known.span).start_us, near.range.resolve(NOW, known.span).end_us)
    assert start <= at < end
    assert end - start <= (whole[1] - whole[0]) * 0.1 + 2
    assert zoomed(near, known, (start, end), 1000).range == ALL


def test_a_view_that_cannot_be_used_hides_nothing_and_says_why(finished):
    known = finished.rollup
    wrong = View(filter="severity>=9 x", range=TimeRange(around="I-ffffffff"))
    at = looking(known, wrong, NOW)
    assert "range: there is no incident I-ffffffff" in at.fault
    assert "filter: severity>= needs one of" in at.fault
    assert len(left_of(known, "incidents", at).rows) == 2
    assert looking(known, View(filter="cause:M3"), NOW).fault == ""
    assert {"severity", "rid", "bucket_tokens"} <= fields_of(known)


def test_completions_go_on_from_what_is_written(finished):
    sheet = finished.rollup.sheets["incidents"]
    assert completions("cau", sheet) == ("cause:",)
    assert completions("severity:critical -cause:m", sheet) == (
        "severity:critical -cause:M1",
        "severity:critical -cause:M3",
    )
    assert completions("nothing:", sheet) == ()


def test_what_is_tried_out_is_read_kept_and_taken_back():
    view = with_what_if_of(View(), "rate=2 hold=120")
    assert (what_if_of(view).rate_factor, what_if_of(view).hold_s, what_if_of(view).pages_each) == (2.0, 120.0, None)
    assert what_if_words(view) == "rate=2 hold=120"
    assert with_what_if_of(view, "") == View()


@pytest.mark.parametrize("text", ["rate", "speed=3", "rate=x", "hold=-1", "pages=inf"])
def test_what_cannot_be_tried_out_is_refused(text):
    with pytest.raises(WhatIfError):
        with_what_if_of(View(), text)


def test_now_is_the_walls_while_somebody_writes_and_the_end_of_what_nobody_writes(finished):
    known, day = finished.rollup, 86_400_000_000
    view = View(range=TimeRange("-1s"))
    at = looking(known, view, NOW + day)
    assert at.now_us == known.data_us + 1
    assert at.span == Span(known.data_us + 1 - 1_000_000, None)
    assert len(left_of(known, "events", at).rows) > 0
    assert at.now_words == "now = 14:13:21Z, the record's end"
    assert "-1s (now = 14:13:21Z, the record's end)" in view_line(at, "", 80, palette_of("dark")).plain
    assert looking(known, View(), NOW + day).now_words == ""

    written = known.extended(known.head | {"writing": True}, known.tables)
    assert looking(written, view, NOW + day).span == Span(NOW + day - 1_000_000, None)
    assert looking(written, view, NOW + day).now_words == ""

    past = replace(view, cursor_us=known.first_us + 100_000).on(Cue.PLAY)
    for each in (known, written):
        at = looking(each, past, NOW + day)
        assert at.now_us == known.first_us + 100_001
        assert at.now_words == "now = 14:13:20Z, the moment replayed"


DAY = 86_400_000_000
MIDNIGHT = 1_790_035_200_000_000  # 2026-09-22T00:00:00Z


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("00:00:02Z", MIDNIGHT + 2_000_000), (" 23:59:58.5Z ", MIDNIGHT - 1_500_000), ("2026-09-21T23:59:59Z", MIDNIGHT - 1_000_000),
        ("12:00:00Z", MIDNIGHT - DAY // 2),
    ],
)  # fmt: skip
def test_a_time_of_day_is_the_last_such_in_what_is_looked_at(text, found):
    assert moment_in(text, (MIDNIGHT - DAY, MIDNIGHT + 5_000_000)) == found


@pytest.mark.parametrize("text", ["12:00:00Z", "2026-09-20T00:00:00Z", "25:00:00Z", "12:00"])
def test_a_moment_outside_or_unreadable_is_refused(text):
    with pytest.raises(BadRange):
        moment_in(text, (MIDNIGHT, MIDNIGHT + 5_000_000))
