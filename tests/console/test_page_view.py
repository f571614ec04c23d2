"""What the screen Pages looks at: pool, area, cursor, zoom, and the story of the page under the cursor."""

from dataclasses import replace

import numpy as np
import pytest
from scripted_ledger import ACME, BRIO, Scene, ordinary

from console.core.page_map import mark_counts, page_map, whole_area
from console.core.page_marks import FOREIGN_READ, LATE_WRITE, PoolMarks
from console.core.page_view import area_of, cell_at, moved, next_mark, pool_looked_at, under, zoomed
from console.core.source import LedgerSource
from console.core.time_range import Span
from console.core.view import View

KEY = ("decode-0", 1)


def area_at(snapshot, view=None, span=None):
    return area_of(snapshot, view or View(), span or Span())


def test_the_pool_is_the_views_else_the_incidents_else_the_first(finished, tmp_path):
    assert pool_looked_at(finished, View()) == (KEY, "kv")
    assert pool_looked_at(finished, View(pool="prefill-0:1:kv")) == (("prefill-0", 1), "kv")
    assert pool_looked_at(finished, View(pool="prefill-0/kv")) == (("prefill-0", 1), "kv")
    assert pool_looked_at(finished, View(pool="nobody:1:kv")) == (KEY, "kv")
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "fine", ACME, 1, 4)
    scene.close()
    clean = LedgerSource(scene.directory, now_us=lambda: scene.now, engine="replay").read()
    assert pool_looked_at(clean, View()) == (KEY, "kv")
    empty = Scene(tmp_path / "empty")
    empty.close()
    assert area_at(LedgerSource(empty.directory, now_us=lambda: 0, engine="replay").read()) is None


def test_an_area_stays_within_the_pool_whatever_the_view_says(finished):
    whole = whole_area(finished, KEY, "kv")
    assert area_at(finished) == whole
    far = Span(whole.end_us + 10, whole.end_us + 20)
    assert area_at(finished, span=far) == whole
    for rows, wanted in (
        ("5-9", (5, 9)),
        ("5-99999", (5, 64)),
        ("99-5", (64, 64)),
        ("x-9", (0, 64)),
        ("7", (0, 64)),
    ):
        area = area_at(finished, View().with_option("rows", rows))
        assert (area.first_page, area.last_page) == wanted, rows


def test_the_cursor_begins_at_the_first_mark_and_never_leaves_the_area(finished):
    drawn = page_map(finished, area_at(finished), rows=12, cols=60)
    first = drawn.markers[0]
    cell = cell_at(drawn, None, None)
    assert (cell.page, cell.t_us) == (first.page, first.t_us)
    for page, t in ((-5, 0), (10**9, 2**62), (0, drawn.area.end_us)):
        there = cell_at(drawn, page, t)
        assert 0 <= there.row < drawn.cells.shape[0]
        assert 0 <= there.col < drawn.cells.shape[1]
        assert drawn.area.first_page <= there.page <= drawn.area.last_page
    corner = moved(drawn, cell, 10**6, 10**6, finished.marks(KEY, "kv"))
    assert (corner.row, corner.col) == (drawn.cells.shape[0] - 1, drawn.cells.shape[1] - 1)


def test_moving_over_every_cell_finds_every_mark(finished):
    drawn = page_map(finished, area_at(finished), rows=12, cols=60)
    cell, marked = cell_at(drawn, drawn.area.first_page, drawn.area.start_us), set()
    for row in range(drawn.cells.shape[0]):
        for col in range(drawn.cells.shape[1]):
            there = moved(drawn, cell, row - cell.row, col - cell.col, finished.marks(KEY, "kv"))
            assert (there.row, there.col) == (row, col)
            marked |= {(m.page, m.t_us) for m in under(finished, drawn, there).marks}
    assert marked == {(m.page, m.t_us) for m in drawn.markers}


@pytest.mark.parametrize("size", [(1, 1), (3, 7), (12, 72), (40, 150)])
def test_a_foreign_read_is_seen_at_every_zoom(finished, size):
    """However few cells, and however far one zooms in on it: no read is lost."""
    whole = whole_area(finished, KEY, "kv")
    drawn = page_map(finished, whole, rows=size[0], cols=size[1])
    reads = [m for m in drawn.markers if m.kind == FOREIGN_READ]
    assert mark_counts(finished, drawn, FOREIGN_READ).sum() == len(reads) == 16
    assert mark_counts(finished, drawn, LATE_WRITE).sum() == sum(m.kind == LATE_WRITE for m in drawn.markers) == 4
    target, view, area = reads[-1], View(), whole
    for _ in range(40):
        drawn = page_map(finished, area, rows=size[0], cols=size[1])
        cell = cell_at(drawn, target.page, target.t_us)
        assert mark_counts(finished, drawn, FOREIGN_READ)[cell.row, cell.col] >= 1
        assert target in under(finished, drawn, cell).marks
        view, span = zoomed(view, area, whole, cell, 0.5)
        area = area_at(finished, view, span)
    assert (area.first_page, area.last_page) == (target.page, target.page)
    assert area.end_us - area.start_us <= 2


def test_marks_beyond_what_is_listed_still_count(finished, monkeypatch):
    monkeypatch.setattr("console.core.page_map.MAX_MARKERS", 3)
    drawn = page_map(finished, area_at(finished), rows=12, cols=60)
    assert drawn.markers_left_out == 20 - len(drawn.markers) > 0
    assert mark_counts(finished, drawn, FOREIGN_READ).sum() + mark_counts(finished, drawn, LATE_WRITE).sum() == 20


def test_zooming_out_again_ends_at_the_whole(finished):
    whole = whole_area(finished, KEY, "kv")
    view, span = View(), Span()
    for factor in [0.5] * 5 + [2.0] * 9:
        area = area_at(finished, view, span)
        drawn = page_map(finished, area, rows=12, cols=60)
        view, span = zoomed(view, area, whole, cell_at(drawn, 31, whole.start_us + 7), factor)
    assert area_at(finished, view, span) == whole
    assert span == Span()
    assert view.option("rows") is None


def test_the_next_mark_goes_round_in_time(finished):
    marks = finished.marks(KEY, "kv")
    places = sorted({(m.t_us, m.page) for m in marks.markers})
    there, page, t = [], 0, 0
    for _ in range(len(places) + 1):
        mark = next_mark(marks, page, t, 1)
        page, t = mark.page, mark.t_us
        there.append((t, page))
    assert there == [*places, places[0]]
    assert next_mark(PoolMarks(()), 0, 0, 1) is None
    first = marks.markers[0]
    assert next_mark(marks, first.page, first.t_us, -1) == marks.markers[-1]


def test_the_story_under_the_cursor_names_owner_last_owner_and_the_read(finished):
    drawn = page_map(finished, area_at(finished), rows=65, cols=60)
    read = next(m for m in drawn.markers if m.kind == FOREIGN_READ and m.rid == "resp-b1")
    found = under(finished, drawn, cell_at(drawn, read.page, read.t_us))
    assert finished.rid_of(KEY, found.life.req) == "resp-b1"
    assert finished.rid_of(KEY, found.before.req) == "resp-a1"
    assert read in found.marks
    assert found.story is not None
    assert any(event.offending for event in found.story.events)
    assert found.shares == ((BRIO, 1),)
    assert found.free == 0
    nothing = under(finished, drawn, cell_at(drawn, 64, drawn.area.end_us))
    assert (nothing.life, nothing.before, nothing.shares, nothing.free, nothing.story) == (None, None, (), 1, None)


def test_the_shares_of_a_row_add_up(finished):
    drawn = page_map(finished, area_at(finished), rows=4, cols=60)
    for col in range(60):
        cell = replace(
            cell_at(drawn, 0, drawn.area.start_us), col=col, t_us=int(drawn.area.start_us + col * drawn.bin_us)
        )
        found = under(finished, drawn, cell)
        assert sum(n for _, n in found.shares) + found.free == drawn.pages_per_row
    assert np.all(drawn.cells < 9)
