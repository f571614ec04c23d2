"""Times of one worker in another's clock: by the reading that was nearest, whichever of the two took it."""

from __future__ import annotations

import pytest

from forensics.order import ClockReading, Order

HERE, THERE = ("decode-0", 1), ("prefill-0", 1)


def an_order(by_here=(), by_there=(), contradicted=()):
    readings = {
        (HERE, THERE): [ClockReading(*one) for one in by_here],
        (THERE, HERE): [ClockReading(*one) for one in by_there],
    }
    return Order({}, readings, set(contradicted))


@pytest.mark.parametrize(
    ("by_here", "by_there", "bounds"),
    [
        ([(1000, 50, 3)], [], (947, 953)),  # there = here + 50
        ([], [(1000, 50, 3)], (1047, 1053)),  # here = there + 50
        ([(400, 10, 1), (900, 50, 3)], [], (947, 953)),  # read at 950 there, the nearer
        ([(900, 50, 3)], [(999, 20, 2)], (1018, 1022)),
        ([(940, 50, 3)], [(1010, 20, 2)], (947, 953)),  # as near: the lesser of the two times
        ([(950, 50, 9), (950, 50, 3)], [], (947, 953)),  # as near: the lesser error
    ],
)
def test_the_nearest_reading_stands(by_here, by_there, bounds):
    order = an_order(by_here, by_there)
    assert order.convert(1000, THERE, HERE) == bounds
    assert order.convert(1000, THERE, HERE) == bounds


def test_no_reading_gives_no_time():
    assert an_order().convert(1000, THERE, HERE) is None


def test_a_contradicted_clock_is_used_for_nothing():
    assert an_order([(900, 50, 3)], contradicted=[THERE]).convert(1000, THERE, HERE) is None


def test_a_worker_has_its_own_clock():
    assert an_order(contradicted=[HERE]).convert(1000, HERE, HERE) == (1000, 1000)
