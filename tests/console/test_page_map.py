"""The page map: cells against a slow reading of the definition, marks, grouping, zoom."""

from dataclasses import replace
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_ledger import ACME, BRIO, Scene, ordinary

from console.core.lives import NONE, Life, PoolLives, pool_lives
from console.core.owners import name_owners
from console.core.page_map import (
    FIRST_NAMED,
    FREE,
    HELD,
    SHARED_RANK,
    Area,
    _cells,
    incident_area,
    page_map,
    whole_area,
)
from console.core.page_marks import FOREIGN_READ, LATE_WRITE
from console.core.snapshot import Snapshot
from console.core.source import LedgerSource
from forensics.rows import WorkerRows

KEY = ("decode-0", 1)


def lives(page: int, cuts: list[tuple[int, int]]) -> list[Life]:
    """Lives of one page, one after another: (pause before, length); odd ones belong to request 2."""
    found, t = [], 0
    for i, (pause, length) in enumerate(cuts):
        t += pause
        found.append(Life(page, 100 + i, 1 + i % 2, 0, t, t, t + length, t + length))
        t += length + 1
    return found


def columns(by_page: list[list[Life]]) -> PoolLives:
    """As the code holds them: by page, then in order."""
    every = [life for mine in by_page for life in mine]
    names = ("page", "tag", "req", "pos", "start_seq", "start_us", "end_seq", "end_us")
    arrays = {name: np.array([getattr(life, name) for life in every], np.int64) for name in names}
    held = np.array([NONE if life.held_us is None else life.held_us for life in every], np.int64)
    return PoolLives(**arrays, cause=np.zeros(len(every), np.int64), held_us=held)


OPS = st.tuples(
    st.sampled_from(["reserve", "append", "free", "hold", "write"]), st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True),
    st.integers(0, 3), st.sampled_from([None, "finish", "abort"]),
)  # fmt: skip


@settings(deadline=None, max_examples=150, derandomize=True)
@given(st.lists(OPS, max_size=30))
def test_lives_are_what_a_slow_reading_of_the_rows_makes_them(ops):
    worker = WorkerRows(("w", 1))
    slow: dict[int, list[dict]] = {}
    for seq, (op, pages, req, cause) in enumerate(ops, start=1):
        row = {
            "pool": "kv",
            "op": op,
            "pages": pages,
            "req": req or None,
            "tag": seq,
            "pos": 5,
            "seq": seq,
            "t": seq * 10,
            "cause": cause,
        }
        worker.pages.append(row)
        for offset, page in enumerate(pages):
            mine = slow.setdefault(page, [])
            if op in ("reserve", "append", "free") and mine and mine[-1]["end_seq"] is None:
                mine[-1] |= {"end_seq": seq, "end_us": seq * 10, "cause": cause}
            if op in ("reserve", "append"):
                mine.append({"page": page, "tag": seq, "req": req or None, "pos": 5 + offset, "start_seq": seq, "start_us": seq * 10,
                             "end_seq": None, "end_us": None, "cause": None, "held_us": None})  # fmt: skip
            if op == "hold" and mine:
                mine[-1]["held_us"] = seq * 10
    lived = pool_lives(worker, "kv")
    for page in range(7):
        assert [vars(life) for life in lived.of_page(page)] == slow.get(page, [])
    every = [life for page in range(7) for life in lived.of_page(page)]
    assert len(lived) == len(every)
    assert lived.is_open == any(life.end_seq is None for life in every)
    near = lived.inside(50, 120, 2, 4)
    assert [near.life(i) for i in range(len(near))] == [
        life
        for life in every
        if 2 <= life.page <= 4 and life.start_us <= 120 and (life.end_us is None or life.end_us >= 50)
    ]
    assert [lived.of_tag(life.page, life.tag) for life in every] == every


def test_the_map_of_a_million_lives_is_quick():
    rng = np.random.default_rng(5)
    n, pages = 1_000_000, 8192
    page = np.sort(rng.integers(0, pages, n))
    start = np.arange(n) * 10
    blank = np.zeros(n, np.int64)
    lived = PoolLives(page, start + 1, blank, blank, start, start, start + 5, start + 5, blank, np.full(n, NONE))
    area = Area(KEY, "kv", 0, n * 10, 0, pages - 1)
    started = process_time()
    cells = _cells(
        area, lived.inside(area.start_us, area.end_us, 0, pages - 1), np.full(n, FIRST_NAMED, np.uint8), 16, 600
    )
    assert process_time() - started < 3.0
    assert cells.shape == (512, 600)


def slow_cell(mine: list[Life], start: float, end: float, ranks: dict) -> int:
    """The definition: the latest life that touches [start, end), held once its hold has come."""
    begun = [life for life in mine if life.start_us < end]
    if not begun or begun[-1].end_us < start:
        return FREE
    life = begun[-1]
    return HELD if life.held_us is not None and life.held_us < end else ranks[life.req]


def commonest(values: list[int], of: int) -> int:
    """The commonest of `of` pages, of which those that are not there are free; the higher where two are as common."""
    values = values + [FREE] * (of - len(values))
    return max(values, key=lambda value: (values.count(value), value))


PAUSE_AND_LENGTH = st.tuples(st.integers(0, 40), st.integers(0, 60), st.one_of(st.none(), st.integers(0, 60)))


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.lists(st.lists(PAUSE_AND_LENGTH, max_size=12), min_size=1, max_size=7), st.integers(1, 40), st.integers(1, 4))
def test_a_cell_is_the_latest_life_that_touches_its_bin_and_the_commonest_of_its_pages(pages, cols, per_row):
    ranks = {1: FIRST_NAMED, 2: FIRST_NAMED + 1}
    by_page = [
        [
            replace(life, held_us=None if held is None else min(life.start_us + held, life.end_us))
            for life, (*_, held) in zip(lives(page, [cut[:2] for cut in cuts]), cuts, strict=True)
        ]
        for page, cuts in enumerate(pages)
    ]
    area = Area(KEY, "kv", 0, 1200, 0, len(pages) - 1)
    every = [life for mine in by_page for life in mine]
    cells = _cells(area, columns(by_page), np.array([ranks[life.req] for life in every], np.uint8), per_row, cols)
    edges = np.linspace(0, 1200, cols + 1)
    for row in range(-(-len(pages) // per_row)):
        for col in range(cols):
            group = by_page[row * per_row : (row + 1) * per_row]
            of_pages = [slow_cell(mine, edges[col], edges[col + 1], ranks) for mine in group]
            assert cells[row, col] == commonest(of_pages, per_row), (row, col)


def test_a_clock_that_went_back_draws_the_life_that_began_last():
    backwards = columns([[Life(0, 1, 1, 0, 1, 60, 2, 90), Life(0, 2, 2, 0, 3, 30, 4, 50)]])
    area = Area(KEY, "kv", 0, 100, 0, 0)
    assert _cells(area, backwards, np.array([FIRST_NAMED, FIRST_NAMED + 1], np.uint8), 1, 10).tolist() == [
        [FREE, FREE, FREE, *[FIRST_NAMED + 1] * 3, FREE, FREE, FREE, FREE]
    ]


def test_a_map_is_drawn_of_lives_and_cells_however_many_pages_there_are(monkeypatch):
    made, zeros = [], np.zeros
    monkeypatch.setattr(np, "zeros", lambda shape, *more: made.append(np.prod(shape)) or zeros(shape, *more))
    pages = 1 << 20
    area = Area(KEY, "kv", 0, 100, 0, pages - 1)
    cells = _cells(
        area, columns([[Life(pages - 1, 1, 1, 0, 1, 60, 2, 90)]]), np.array([FIRST_NAMED], np.uint8), 2048, 10
    )
    assert cells.shape == (512, 10)
    assert max(made) == 512 * 11


def test_the_scripted_map(finished):
    drawn = page_map(finished, whole_area(finished, KEY, "kv"))
    assert drawn.cells.shape == (65, 600)
    assert (drawn.pages_per_row, drawn.area.first_page, drawn.area.last_page) == (1, 0, 64)
    a, b, c = (FIRST_NAMED + i for i in range(3))
    assert set(np.unique(drawn.cells[1:13])) == {FREE, a, b}
    assert set(np.unique(drawn.cells[20:26])) == {FREE, c}
    assert set(np.unique(drawn.cells[34:])) == {FREE}
    reads = {(m.page, m.rid, m.donor) for m in drawn.markers if m.kind == FOREIGN_READ}
    assert reads == {(p, "resp-b1", "resp-a1") for p in range(1, 13)} | {
        (p, "resp-b2", "resp-a2") for p in range(30, 34)
    }
    writes = {(m.page, m.rid, m.donor, m.words) for m in drawn.markers if m.kind == LATE_WRITE}
    assert writes == {(p, "resp-b2", "resp-a2", "proved, by prefill-0") for p in range(30, 34)}
    assert [(t.rid, len(t.pages)) for t in drawn.tenures if t.rid.startswith("resp-b")] == [
        ("resp-b1", 12),
        ("resp-b2", 4),
    ]


def test_marks_stand_in_the_life_that_was_hurt(finished):
    lived = finished.lives(KEY, "kv")
    for marker in page_map(finished, whole_area(finished, KEY, "kv")).markers:
        life = next(x for x in lived.of_page(marker.page) if x.start_us <= marker.t_us <= x.end_us)
        assert finished.rid_of(KEY, life.req) == marker.rid


def test_zooming_keeps_every_mark_inside_and_leaves_out_the_others(finished):
    incident = next(i for i in finished.incidents if i.cause == "M1")
    area = incident_area(finished, incident, margin_us=10_000)
    drawn = page_map(finished, Area(area.key, "kv", area.start_us, area.end_us, 5, 8), rows=2, cols=10)
    assert drawn.cells.shape == (2, 10)
    assert [(m.kind, m.page) for m in drawn.markers] == [(FOREIGN_READ, p) for p in (5, 6, 7, 8)]


def test_never_more_cells_than_the_browser_can_take(finished):
    drawn = page_map(finished, Area(KEY, "kv", 0, 10, 0, 99_999), rows=5000, cols=5000)
    assert drawn.cells.shape[0] <= 512
    assert drawn.cells.shape[1] <= 600
    assert drawn.pages_per_row * drawn.cells.shape[0] >= 100_000


@pytest.fixture
def held_scene(tmp_path):
    scene = Scene(tmp_path / "ledger")
    asked = scene.receive("held", ACME, 32, [5, 6])
    scene.wait(50)
    scene.decode.pages(
        "hold", "kv", asked.req["decode-0"], asked.dst_tag, np.array([5, 6], np.int32), deadline=scene.now
    )
    scene.wait(50)
    scene.decode.pages("free", "kv", asked.req["decode-0"], asked.dst_tag, np.array([5, 6], np.int32), cause="drained")
    scene.wait(50)
    ordinary(scene, "later", BRIO, 20, 1)
    scene.close()
    return LedgerSource(scene.directory, now_us=lambda: scene.now).read()


def test_held_pages_look_held_until_they_are_free(held_scene):
    assert isinstance(held_scene, Snapshot)
    row = page_map(held_scene, whole_area(held_scene, KEY, "kv"), cols=18).cells[5].tolist()
    # 50 ms owned, 50 ms held, then free.
    runs = [value for i, value in enumerate(row) if i == 0 or value != row[i - 1]]
    assert runs == [FIRST_NAMED, HELD, FREE]


def test_a_drained_handoff_makes_no_late_write(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "fine", ACME, 1, 4)
    scene.close()
    snapshot = LedgerSource(scene.directory, now_us=lambda: scene.now).read()
    assert page_map(snapshot, whole_area(snapshot, KEY, "kv")).markers == ()


def test_a_late_write_by_clock_alone_is_called_inferred(tmp_path):
    scene = Scene(tmp_path / "ledger")
    asked = scene.receive("donor", ACME, 32, [1, 2])
    scene.compute(asked, [1, 2], 32)
    scene.decode.pages("free", "kv", asked.req["decode-0"], asked.dst_tag, np.array([1, 2], np.int32), cause="timeout")
    scene.wait(5)
    scene.send(asked)  # nothing that the mover has heard tells it of the free
    scene.close()
    snapshot = LedgerSource(scene.directory, now_us=lambda: scene.now).read()
    words = {m.words for m in page_map(snapshot, whole_area(snapshot, KEY, "kv")).markers if m.kind == LATE_WRITE}
    assert words == {"inferred from clocks, by prefill-0"}


def test_six_tenants_have_letters_the_rest_shares_one():
    tenants = [f"t-{i}" for i in range(9)]
    few = name_owners(tenants[:3], frozenset({"t-2"}))
    assert [(o.tenant, o.letter) for o in few.named] == [("t-0", "a"), ("t-1", "b"), ("t-2", "c")]
    many = name_owners(tenants, frozenset({"t-8"}))
    assert many.of("t-8").letter == "a"
    assert (many.of("t-7").letter, many.others) == ("z", 3)
    assert SHARED_RANK == FIRST_NAMED - 1


class Unread(list):
    """Rows that are not to be gone through."""

    def __iter__(self):
        pytest.fail("gone through again")


def test_another_pool_does_not_go_through_the_rows_of_every_worker_again(finished_ledger, monkeypatch):
    snapshot = LedgerSource(finished_ledger, now_us=lambda: 1_790_000_100_000_000).read()
    drawn = [(whole_area(snapshot, *pool), snapshot.marks(*pool)) for pool in snapshot.pools]
    snapshot._marks.clear()
    for worker in snapshot.workers.values():
        monkeypatch.setattr(worker, "transfers", Unread(worker.transfers))
    monkeypatch.setitem(snapshot.ledger.tables, "workers", None)
    assert [(whole_area(snapshot, *pool), snapshot.marks(*pool)) for pool in snapshot.pools] == drawn
