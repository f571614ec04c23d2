"""Physical memory of a simulation against a model that keeps every slot on its own."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.simulation.headers import HeaderFlight, HeaderStore
from engine.simulation.memory import Flight, PageStore, Write
from engine.simulation.reading import Reader, contents_at, look, mismatches, own_contents

SIZE, PAGES = 4, 6
FRESH = (0, 0, False)


class Slots:
    """Every slot as (stamp, content, tainted)."""

    def __init__(self):
        self.slots = {(page, slot): FRESH for page in range(PAGES) for slot in range(SIZE)}

    def write(self, pages, off, tokens, stamp, contents, tainted):
        for i in range(off, off + tokens):
            self.slots[int(pages[i // SIZE]), i % SIZE] = (stamp, int(contents[i // SIZE]), tainted)


def seen(store, page):
    return [(r.stamp, r.content, r.tainted) for r in store.look(page) for _ in range(r.lo, r.hi)]


pages = st.lists(st.integers(0, PAGES - 1), min_size=1, max_size=3, unique=True)
moves = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"), pages, st.integers(0, SIZE - 1), st.integers(1, 9), st.integers(1, 3), st.booleans()
        ),
        st.tuples(
            st.just("grow"), st.integers(0, PAGES - 1), st.integers(0, SIZE - 1), st.integers(1, 3), st.integers(1, 3)
        ),
        st.tuples(st.just("copy"), pages, st.permutations(range(PAGES))),
        st.tuples(st.just("zero"), pages),
    ),
    max_size=25,
)


@settings(max_examples=400, deadline=None)
@given(moves)
def test_every_slot_is_as_its_last_writer_left_it(moves):
    store, model = PageStore(PAGES, SIZE), Slots()
    for now, (kind, *rest) in enumerate(moves):
        if kind == "write":
            chosen, off, tokens, stamp, tainted = rest
            chosen = np.array(chosen, np.int32)
            tokens = min(tokens, len(chosen) * SIZE - off)
            used = chosen[: -(-(off + tokens) // SIZE)]
            contents = 1000 * stamp + np.arange(len(used))
            store.write(Write(used, off, tokens, stamp, contents, np.full(len(used), now), tainted), now)
            model.write(used, off, tokens, stamp, contents, tainted)
        elif kind == "grow":
            page, lo, count, stamp = rest
            count = min(count, SIZE - lo)
            one = np.array([page], np.int32)
            content = np.array([1000 * stamp + page])
            store.grow(one, np.array([lo]), count, np.array([stamp]), content, np.array([now]), np.array([False]), now)
            model.write(one, lo, count, stamp, content, False)
        elif kind == "copy":
            source, order = np.array(rest[0], np.int32), np.array(rest[1], np.int32)
            target = PageStore(PAGES, SIZE)
            for page in range(PAGES):
                target.put(np.array([page]), store.image(np.array([page])), 0, np.array([SIZE]))
            flight = Flight(store, source, target, order[: len(source)], 9, np.full(len(source), SIZE), now, 0)
            flight.advance(now)
            before = dict(model.slots)
            for src, dst in zip(source, order, strict=False):
                for slot in range(SIZE):
                    model.slots[int(dst), slot] = before[int(src), slot]
            store = target
        else:
            store.zero(np.array(rest[0], np.int32), now)
            for page in rest[0]:
                for slot in range(SIZE):
                    model.slots[page, slot] = FRESH
    for page in range(PAGES):
        found, wanted = seen(store, page), [model.slots[page, slot] for slot in range(SIZE)]
        assert found == wanted


@settings(max_examples=400, deadline=None)
@given(moves)
def test_headers_are_the_same_whether_what_lies_behind_them_is_kept_or_not(moves):
    stores = [PageStore(PAGES, SIZE), HeaderStore(PAGES, SIZE)]
    for now, (kind, *rest) in enumerate(moves):
        for at, (store, flight) in enumerate(zip(stores, (Flight, HeaderFlight), strict=True)):
            if kind == "write":
                chosen, off, tokens, stamp, tainted = rest
                used = np.array(chosen[: -(-(off + tokens) // SIZE)], np.int32)
                tokens = min(tokens, len(used) * SIZE - off)
                tags = np.full(len(used), stamp)
                store.write(Write(used, off, tokens, stamp, 1000 * stamp + used, tags, tainted), now)
            elif kind == "grow":
                page, lo, count, stamp = rest
                one, first, none = np.array([page], np.int32), np.array([lo]), np.array([False])
                count = min(count, SIZE - lo)
                store.grow(one, first, count, np.array([stamp]), 1000 * stamp + one, np.array([stamp]), none, now)
            elif kind == "copy":
                source, target = np.array(rest[0], np.int32), np.array(rest[1][: len(rest[0])], np.int32)
                other = type(store)(PAGES, SIZE)
                flight(store, source, other, target, 9, np.full(len(source), SIZE), now, 0).advance(now)
                stores[at] = other
            else:
                store.zero(np.array(rest[0], np.int32), now)
        kept, headers = stores
        assert (kept.tag.tolist(), kept.tokens.tolist()) == (headers.tag.tolist(), headers.tokens.tolist())


def test_what_follows_a_hole_in_a_page_is_not_valid():
    for store in (PageStore(2, SIZE), HeaderStore(2, SIZE)):
        page, none = np.array([1], np.int32), np.array([False])
        for lo in (0, 2, 3):
            store.grow(page, np.array([lo]), 1, np.array([7]), np.array([70]), np.array([5]), none, lo)
        assert (store.tag[1], store.tokens[1]) == (5, 1)


def test_pages_of_a_flight_are_read_and_land_one_after_another():
    source, target = PageStore(4, SIZE), PageStore(4, SIZE)
    full = np.arange(1, 4, dtype=np.int32)
    source.write(Write(full, 0, 12, 7, np.array([70, 71, 72]), np.full(3, 5)), 0)
    flight = Flight(source, full, target, full, 99, np.full(3, SIZE), start_us=100, step_us=10)
    assert flight.end_us == 130
    target.settle(full, 109)
    assert [seen(target, page)[0][0] for page in (1, 2, 3)] == [0, 0, 0]
    target.settle(full, 110)
    assert [seen(target, page)[0][0] for page in (1, 2, 3)] == [7, 0, 0]
    source.write(Write(full, 0, 12, 8, np.array([80, 81, 82]), np.full(3, 6)), 115)  # page 3 is read at 120
    target.settle(full, 130)
    assert [seen(target, page)[0][0] for page in (1, 2, 3)] == [7, 7, 8]
    assert target.tag[1:].tolist() == [99, 99, 99]
    assert target.slots["racy"][1:].tolist() == [
        True,
        True,
        True,
    ]  # nobody can tell from outside which pages were early


def test_a_reader_finds_what_is_not_its_own_up_to_the_token_it_reads():
    store = PageStore(4, SIZE)
    table = np.array([1, 2, 3], np.int32)
    store.write(Write(table, 0, 12, 7, np.array([70, 71, 72]), np.full(3, 5)), 0)
    store.write(Write(table[1:2], 0, 2, 8, np.array([81]), np.full(1, 6)), 1)
    reader = Reader(7, np.array([70, 71]), table, np.full(3, 5))
    assert look(store, reader, 12, 10_000).foreign == {2: [8]}
    assert look(store, reader, 4, 10_000).clean
    assert mismatches(store, reader, 12) == [1]
    other = Reader(9, np.array([70, 99]), table, np.full(3, 5))
    found = look(store, other, 8, 10_000)
    assert found.borrowed == {1: [7]}  # equal content, computed by another
    assert found.foreign == {2: [8, 7]}


def test_a_readers_own_content_in_another_place_of_its_table_is_misplaced():
    store, known = PageStore(4, SIZE), np.array([70, 71])
    table = np.array([1, 2, 3, 1], np.int32)  # page 1 is freed too early, and comes back as the fourth page
    store.write(Write(table[:3], 0, 9, 7, contents_at(7, known, 0, 3), np.full(3, 5)), 0)
    reader = Reader(7, known, table, np.array([5, 5, 5, 6]))
    assert look(store, reader, 9, 10_000).clean
    at = own_contents(np.array([7]), np.array([3]))
    store.grow(table[3:], np.array([0]), 1, np.array([7]), at, np.array([6]), np.array([False]), 1)
    found = look(store, reader, 13, 10_000)
    assert found.misplaced == [1] and not found.clean
    swapped = Reader(7, known, table[[1, 0]], np.full(2, 5))
    assert look(store, swapped, 8, 10_000).misplaced == [2, 1]


def test_a_prompt_that_is_half_computed_is_in_its_place():
    store, known = PageStore(4, SIZE), np.array([70, 71])
    table = np.array([1, 2], np.int32)
    store.write(Write(table[:1], 0, 2, 7, contents_at(7, known, 0, 1), np.full(1, 5)), 0)
    assert look(store, Reader(7, known, table, np.full(2, 5)), 2, 10_000).clean
    assert look(store, Reader(7, known, table, np.full(2, 5)), 4, 10_000).foreign == {1: [0]}


def test_of_two_images_for_one_page_the_last_one_stays():
    source, target = PageStore(4, SIZE), PageStore(4, SIZE)
    both, twice = np.array([1, 2], np.int32), np.array([3, 3], np.int32)
    source.write(Write(both[:1], 1, 2, 7, np.array([70]), np.full(1, 5)), 0)
    source.write(Write(both[:1], 3, 1, 8, np.array([80]), np.full(1, 6)), 0)  # in pieces
    source.write(Write(both[1:], 0, 4, 9, np.array([90]), np.full(1, 7)), 0)
    target.put(twice, source.image(both), 99, np.array([4, 4]))
    assert seen(target, 3) == seen(source, 2)
    target.put(twice, source.image(both[::-1]), 99, np.array([4, 4]))
    assert seen(target, 3) == seen(source, 1)
    target.put(twice, source.image(both), 99, np.array([4, 4]))
    assert seen(target, 3) == seen(source, 2)


def test_nobody_can_tell_which_of_two_images_for_one_page_came_last():
    source, target = PageStore(4, SIZE), PageStore(4, SIZE)
    full, twice = np.array([1, 2, 3], np.int32), np.array([2, 1, 2], np.int32)
    source.write(Write(full, 0, 12, 7, np.array([70, 71, 72]), np.full(3, 5)), 0)
    flight = Flight(source, full, target, twice, 99, np.full(3, SIZE), start_us=100, step_us=10)
    target.settle(full, 130)
    flight.forget()
    assert look(target, Reader(7, np.array([71, 70]), np.array([1, 2], np.int32), np.full(2, 99)), 8, 10_000).torn == [
        2
    ]


def test_nobody_can_tell_whose_bytes_stay_where_two_write_one_slot_in_one_pass():
    store = PageStore(4, SIZE)
    both, none = np.array([1, 1], np.int32), np.zeros(2, np.bool_)
    store.readers[1] = 2
    for lo, torn in (([0, 2], []), ([1, 1], [1])):
        store.grow(both, np.array(lo), 1, np.array([7, 8]), np.array([70, 80]), np.array([5, 6]), none, 0)
        assert look(store, Reader(7, np.zeros(0), both[:1], np.array([5])), 3, 10_000).torn == torn


def test_a_writer_that_takes_up_anothers_page_in_its_middle_leaves_its_header():
    store = PageStore(2, SIZE)
    page = np.array([1], np.int32)
    store.write(Write(page, 0, 4, 7, np.array([70]), np.array([5])), 0)
    store.grow(page, np.array([2]), 1, np.array([8]), np.array([80]), np.array([6]), np.array([False]), 1)
    assert (store.tag[1], store.tokens[1]) == (5, 2)
    assert mismatches(store, Reader(8, np.zeros(0), page, np.array([6])), 3) == [0]
