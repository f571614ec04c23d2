"""What a record cannot tell, the truth calls torn: bytes that came while a pass read, while a run wrote, while zeroed."""

import json
from types import SimpleNamespace

import numpy as np

from engine.executor import DecodeWork, PoolWork
from engine.simulation.clock import VirtualClock
from engine.simulation.memory import CLOCK_SLACK_US, Flight, PageStore, Write
from engine.simulation.people import People, Person
from engine.simulation.planes import Plane, Planes
from engine.simulation.prompts import SyntheticPrompt
from engine.simulation.reading import Reader, look, one_slot_each, own_contents
from engine.simulation.truth import SimTruth
from engine.simulation.world import World

SIZE = 4
PAGE = np.array([1], np.int32)
HIS, HERS = 7 << 20, 9 << 20
LATER = 1_000_000


def sent(target, start_us=0, step_us=10):
    """A flight of her page to page 1."""
    source = PageStore(2, SIZE)
    source.write(Write(PAGE, 0, SIZE, HERS, np.array([90]), np.array([5])), 0)
    return Flight(source, PAGE, target, PAGE, 6, np.array([SIZE]), start_us, step_us)


def torn(store, stamp=HIS):
    return look(store, Reader(stamp, np.zeros(0), PAGE, np.array([6])), SIZE, LATER).torn


def test_a_page_that_was_zeroed_while_a_write_to_it_was_under_way():
    store = PageStore(2, SIZE)
    flight = sent(store)
    store.zero(PAGE, 5)
    flight.advance(10)
    flight.forget()
    assert torn(store) == [1]


def test_a_page_that_was_written_as_a_whole_after_a_flight_had_landed_and_before_clocks_can_tell():
    store = PageStore(2, SIZE)
    flight = sent(store)
    flight.advance(10)
    store.write(Write(PAGE, 0, SIZE, HIS, np.array([70]), np.array([6])), 11)
    flight.forget()
    assert torn(store) == [1]
    store.write(Write(PAGE, 0, SIZE, HIS, np.array([70]), np.array([6])), 12)
    assert torn(store) == []


def test_what_a_worker_has_written_by_now_is_written_before_a_flight_is_forgotten():
    store = PageStore(2, SIZE)
    flight = sent(store)
    flight.advance(10)

    def grow():
        store.before_change = lambda: None
        store.grow(PAGE, np.array([0]), 1, np.array([HIS]), np.array([70]), np.array([6]), np.array([False]), 11)

    store.before_change = grow
    flight.forget()
    assert torn(store) == [1]


def test_a_copy_of_a_page_to_which_a_write_is_under_way():
    store, other = PageStore(2, SIZE), PageStore(2, SIZE)
    flight = sent(store)
    other.put(PAGE, store.image(PAGE), 6, np.array([SIZE]))
    assert torn(other) == [1]
    flight.advance(10)


def told(tmp_path, people):
    world = World(0)
    return SimTruth(tmp_path, "decode-0", people, VirtualClock(world))


def everybody():
    people = People()
    for stamp, rid in ((HIS, "r-his"), (HERS, "r-hers")):
        people.add(stamp, Person(rid, "acme", (), SyntheticPrompt([(1, 2)])))
    return people


def reads(truth, tmp_path):
    truth.close()
    rows = [json.loads(line) for line in (tmp_path / "decode-0.jsonl").read_text().splitlines()]
    return [(row["t"], row["torn"]) for row in rows if row["kind"] == "read"]


def plane_of(tmp_path, pool, lo):
    """His page 1 in a pool, read and written at slot `lo` by a run that began at 100 and whose first pass ends at 200."""
    world, people = SimpleNamespace(now=100), everybody()
    task = SimpleNamespace(world=world, call=lambda: None)
    store, truth = PageStore(2, SIZE), told(tmp_path, people)
    store.write(Write(PAGE, 0, SIZE, HERS, np.array([91]), np.array([4])), 0)
    planes = Planes(task, people, [Plane(pool, store, truth)])
    work = DecodeWork(0, HIS, 0, lo, PAGE, np.array([6]), (PoolWork(pool, 0, PAGE, np.array([6]), lo, lo + 1, SIZE),))
    planes.bind([work])
    planes.read(work, False, 1, 200, [work])
    planes.begin([work])
    planes.grow(0, 1, 100)
    return world, store, truth, planes


def test_what_a_pass_read_of_a_component_is_torn_by_a_flight_that_sets_out_before_clocks_can_tell_that_it_had_ended(
    tmp_path,
):
    for number, (sets_out, expected) in enumerate(
        ((150, [1]), (200 + CLOCK_SLACK_US, [1]), (201 + CLOCK_SLACK_US, []))
    ):
        world, store, truth, _ = plane_of(tmp_path / str(number), "draft", 2)
        world.now = sets_out
        sent(store, sets_out)
        assert reads(truth, tmp_path / str(number)) == [(100, expected)]


def test_what_an_earlier_pass_had_read_just_so_stays_as_it_is(tmp_path):
    world, store, truth, planes = plane_of(tmp_path, "draft", 2)
    for reader in next(iter(planes)).readers.values():
        reader.look(300, 400)
    world.now = 350
    sent(store, 350)
    assert reads(truth, tmp_path) == [(100, [])]


def test_the_first_slots_of_a_components_page_are_torn_by_bytes_that_come_during_their_run(tmp_path):
    for number, (pool, lo, expected) in enumerate((("draft", 0, [1]), ("draft", 2, []), ("state", 0, [1]))):
        world, store, _, _ = plane_of(tmp_path / str(number), pool, lo)
        flight = sent(store, 150)
        world.now = 160
        flight.advance(160)
        flight.forget()
        assert torn(store) == expected, pool


def test_bytes_that_come_after_the_run_leave_its_slots_as_they_are(tmp_path):
    world, store, _, planes = plane_of(tmp_path, "draft", 0)
    planes.end()
    flight = sent(store, 150)
    world.now = 160
    flight.advance(160)
    flight.forget()
    assert torn(store) == []


def test_anothers_content_that_is_the_readers_own_of_another_place_is_displaced_and_not_foreign():
    prompt = SyntheticPrompt([(1, 2 * SIZE)])
    digests = prompt.page_digests(SIZE)
    store = PageStore(4, SIZE)
    table = np.array([1, 2], np.int32)
    contents = np.array([digests[0], digests[0]])
    store.write(Write(table, 0, 2 * SIZE, HERS, contents, np.array([6, 6])), 0)
    found = look(store, Reader(HIS, digests, table, np.array([6, 6])), 2 * SIZE, 0)
    assert (found.foreign, found.borrowed, found.displaced) == ({}, {1: [HERS]}, {2: [HERS]})
    store.write(Write(table, 0, 2 * SIZE, HERS, own_contents(HERS, np.arange(2)), np.array([6, 6])), 0)
    found = look(store, Reader(HIS, digests, table, np.array([6, 6])), 2 * SIZE, 0)
    assert (found.foreign, found.displaced) == ({1: [HERS], 2: [HERS]}, {})


def test_slots_behind_the_first_of_a_page_that_its_writer_alone_reads_leave_the_slots_before_them_beyond_doubt():
    for readers, lo, expected in ((1, 2, []), (1, 0, [1]), (2, 2, [1])):
        store = PageStore(2, SIZE)
        flight = sent(store)
        flight.advance(10)
        store.readers[1] = readers
        store.grow(PAGE, np.array([lo]), 1, np.array([HIS]), np.array([70]), np.array([6]), np.array([False]), 11)
        flight.forget()
        assert torn(store) == expected, (readers, lo)


def test_what_a_run_writes_itself_into_a_page_that_another_reads_tears_nothing(tmp_path):
    world, store, _, planes = plane_of(tmp_path, "draft", 0)
    store.readers[1] += 1
    planes.grow(1, 1, 150)
    assert torn(store) == []
    flight = sent(store, 150)
    flight.advance(160)
    world.now = 160
    flight.forget()
    assert torn(store) == [1]


def test_content_of_the_readers_own_tokens_under_another_tag_is_astray():
    digests = SyntheticPrompt([(1, SIZE)]).page_digests(SIZE)
    for stamp in (HIS, HERS):
        store = PageStore(2, SIZE)
        store.write(Write(PAGE, 0, SIZE, stamp, digests, np.array([6])), 0)
        found = {tag: look(store, Reader(HIS, digests, PAGE, np.array([tag])), SIZE, 0) for tag in (5, 6)}
        assert (found[5].astray, found[5].foreign, found[6].astray) == ([1], {}, [])


def test_foreign_slots_that_the_pass_itself_fills_are_torn_and_those_beside_them_are_not():
    store = PageStore(2, SIZE)
    store.write(Write(PAGE, 0, SIZE, HIS, np.array([70]), np.array([6])), 0)
    store.write(Write(PAGE, 0, 1, HERS, np.array([90]), np.array([5])), 1)
    reader = Reader(HIS, np.array([70]), PAGE, np.array([6]))

    def found(page, slot):
        return look(store, reader, SIZE, LATER, lambda: one_slot_each([page], [slot]))

    assert found(1, 0).foreign == found(1, 1).foreign == {1: [HERS]}
    assert [found(*at).torn for at in ((1, 0), (1, 1), (0, 0))] == [[1], [], []]
