"""Every relation of docs/verdicts.md, "Order", and which events a reader may and must have found."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_builder import INF, EvidenceBuilder

from forensics.replay_facts import Facts
from forensics.replay_order import History, Mode, before, certain, gone, pre, seen
from forensics.replay_ordinary import Timeline
from forensics.replay_records import NEVER_AFTER, NEVER_BEFORE, NONE, Event, Passes, Read

E, C = Mode.E, Mode.C


def event(lo: int, hi: int, **columns: Any) -> Event:
    defaults: dict[str, Any] = {
        "event": 0, "cell": 0, "kind": "write", "t_lo": NEVER_AFTER, "t_hi": NEVER_BEFORE, "owner": 0, "tag": 0,
        "mover": NONE, "post_seq": NEVER_AFTER, "done_seq": NEVER_BEFORE, "stream": NONE, "src_cell": NONE,
        "src_lo": 0, "src_hi": 0, "src_tag": 0, "src_since": NEVER_BEFORE, "src_until": NEVER_AFTER, "digest": NONE, "pos": NONE,
        "authority": NONE, "collided": 0, "acked": 0, "reason": "", "flaw": "",
    }  # fmt: skip
    return Event(**(defaults | {"lo": lo, "hi": hi} | columns))


def read(**columns: Any) -> Read:
    """Bound at 20; runs (22, 25] and (25, 30]; passes between times 230 and 300."""
    defaults: dict[str, Any] = {
        "read": 0, "cell": 0, "rq": 0, "owner": 0, "tag": 0, "s0": 20, "s1": 30, "s1_max": 30, "last_since": 25,
        "first_t": 230, "last_t_end": 290, "end_t": 300, "growth": NONE, "reserve_seq": 0, "end_seq": INF,
        "pos": NONE, "pos_last": NEVER_BEFORE, "req_lo": NEVER_BEFORE, "req_hi": NEVER_AFTER,
    }  # fmt: skip
    return Read(**(defaults | columns))


RUNS = Passes(seq=[25, 30], since_seq=[22, 25], step=[1, 2], n=[1, 1], t=[230, 260], end_t=[240, 270])


@pytest.mark.parametrize(
    ("e", "f", "by_seq", "by_clock"),
    [
        (event(1, 5), event(5, 9), True, True),
        (event(1, 6), event(5, 9), False, False),
        (event(1, 9, mover=3, done_seq=40), event(2, 9, mover=3, post_seq=40), True, True),
        (event(1, 9, mover=3, done_seq=41), event(2, 9, mover=3, post_seq=40), False, False),
        (event(1, 9, mover=3, done_seq=40), event(2, 9, mover=4, post_seq=40), False, False),
        (event(1, 8, stream=1), event(1, 9, stream=1), True, True),
        (event(1, 8, stream=1), event(1, 9, stream=2), False, False),
        (event(1, 9, t_hi=100), event(1, 9, t_lo=101), False, True),
        (event(1, 9, t_hi=100), event(1, 9, t_lo=100), False, False),
        (event(1, 9, t_hi=100), event(1, 9), False, False),
        (event(5, 9, t_hi=100), event(1, 5, t_lo=101), False, False),
    ],
    ids=[
        "seq",
        "overlap",
        "mover",
        "mover-overlap",
        "other-mover",
        "stream",
        "other-stream",
        "clock",
        "tie",
        "null",
        "seq-outranks-clock",
    ],
)
def test_before(e: Event, f: Event, by_seq: bool, by_clock: bool) -> None:
    assert (before(e, f, E), before(e, f, C)) == (by_seq, by_clock)


@pytest.mark.parametrize(
    ("e", "by_seq", "by_clock"),
    [
        (event(10, 20), True, True),
        (event(10, 21), False, False),
        (event(10, 21, t_hi=229), False, True),
        (event(10, 21, t_hi=230), False, False),
        (event(20, 21, t_hi=1), False, False),
        (event(20, 30, event=7), True, True),
    ],
    ids=["seq", "undecided", "clock", "tie", "seq-outranks-clock", "own-growth"],
)
def test_pre(e: Event, by_seq: bool, by_clock: bool) -> None:
    x = read(growth=7)
    assert (pre(e, x, E), pre(e, x, C)) == (by_seq, by_clock)


@pytest.mark.parametrize(
    ("e", "x", "by_seq", "by_clock"),
    [
        (event(30, 31), read(), True, True),
        (event(29, 31), read(), False, False),
        (event(24, 31, t_lo=301), read(), False, True),
        (event(24, 31, t_lo=300), read(), False, False),
        (event(10, 25, t_lo=301), read(), False, False),
        (event(24, 41, t_lo=301), read(s1_max=40), False, False),
    ],
    ids=["seq", "undecided", "clock", "tie", "seen-outranks-clock", "end-not-known"],
)
def test_gone(e: Event, x: Read, by_seq: bool, by_clock: bool) -> None:
    assert (gone(e, x, E), gone(e, x, C)) == (by_seq, by_clock)


@pytest.mark.parametrize(
    ("e", "by_seq", "by_clock"),
    [
        (event(10, 20), True, True),
        (event(21, 25), True, True),
        (event(21, 26), False, False),
        (event(21, 26, t_hi=289), False, True),
        (event(21, 26, t_hi=290), False, False),
        (event(30, 31, t_hi=1), False, False),
    ],
    ids=["pre", "last-since", "undecided", "clock", "tie", "gone-outranks-clock"],
)
def test_seen(e: Event, by_seq: bool, by_clock: bool) -> None:
    assert (seen(e, read(), E), seen(e, read(), C)) == (by_seq, by_clock)


def test_certain_needs_every_rival_before_it_or_a_pass_between() -> None:
    old, new = event(10, 15), event(24, 26, event=1)
    late = event(25, 29, event=2)
    runs = RUNS
    assert certain(old, read(), [old], runs, E)
    assert not certain(old, read(), [old, new], runs, E), "no run between seq 20 and 24 is certain to have found it"
    assert certain(old, read(), [old, late], runs, E), "run (22, 25] ran after it and before the late one"
    assert not certain(late, read(), [old, late], runs, E), "the last run may have begun before it"
    assert certain(event(21, 22), read(), [event(21, 22)], runs, E)


def history(*events: tuple[Any, ...]) -> History:
    built = EvidenceBuilder()
    cell = built.cell(0)
    for kind, lo, hi, columns in events:
        built.event(cell, kind, lo, hi, **columns)
    return History(Facts(built.build()), cell)


def spans(found: list[Event]) -> set[tuple[int, int]]:
    return {(e.lo, e.hi) for e in found}


def test_an_event_is_hidden_by_a_later_one_that_landed_before_the_read() -> None:
    cell = history(("write", 4, 5, {}), ("write", 9, 10, {}), ("write", 15, 17, {}), ("write", 40, 41, {}))
    assert spans(cell.possible(12, 30)) == {(9, 10), (15, 17)}
    assert spans(cell.possible(20, 30)) == {(15, 17)}
    assert spans(cell.possible(7, 9)) == {(4, 5)}
    assert spans(cell.possible(0, 3)) == {(-1, 0)}


def test_a_ghost_hides_nothing_and_is_hidden_like_any_event() -> None:
    cell = history(("write", 4, 5, {}), ("ghost", 7, 9, {"reason": "lost"}))
    assert spans(cell.possible(10, 30)) == {(4, 5), (7, 9)}
    cell = history(("ghost", 4, 5, {"reason": "lost"}), ("write", 9, 10, {}))
    assert spans(cell.possible(10, 30)) == {(9, 10)}


def test_order_of_mover_and_stream_hides_what_seq_leaves_open() -> None:
    first, second = {"mover": 2, "post_seq": 50, "done_seq": 52}, {"mover": 2, "post_seq": 52, "done_seq": 55}
    assert spans(history(("landing", 3, 9, first), ("landing", 4, 8, second)).possible(10, 30)) == {(4, 8)}
    assert spans(history(("landing", 3, 9, first), ("landing", 4, 12, second)).possible(10, 30)) == {(3, 9), (4, 12)}
    assert spans(history(("write", 3, 8, {"stream": 1}), ("write", 3, 9, {"stream": 1})).possible(10, 30)) == {(3, 9)}


def test_own_growth_hides_what_was_there_although_it_has_not_ended() -> None:
    built = EvidenceBuilder()
    rq = built.request("a")
    cell = built.cell(0)
    built.write(cell, rq, 1, 5)
    growth = built.write(cell, rq, 1, 40, lo=20, kind="growth")
    facts = Facts(built.build())
    assert spans(History(facts, cell).possible(20, 40, facts.event(growth))) == {(20, 40)}
    assert spans(History(facts, cell).possible(20, 40)) == {(4, 5), (20, 40)}


def test_clocks_narrow_what_seq_leaves_open() -> None:
    early, late = {"t_lo": 90, "t_hi": 100}, {"t_lo": 110, "t_hi": 120}
    cell = history(("write", 3, 25, early), ("write", 3, 26, late), ("write", 24, 60, {"t_lo": 400, "t_hi": 410}))
    x = read()
    assert spans(cell.possible_for(x, E)) == {(-1, 0), (3, 25), (3, 26), (24, 60)}
    assert spans(cell.possible_for(x, C)) == {(3, 26)}


def test_many_reads_at_a_time_agree_with_one_at_a_time_on_seqs_that_no_row_has() -> None:
    built = EvidenceBuilder()
    rq = built.request("a")
    cell = built.cell(0)
    built.write(cell, rq, 1, INF, lo=4)
    built.runs(rq, (5, 6))
    built.read(cell, rq, 1, 5)
    facts = Facts(built.build())
    timeline = Timeline(facts)
    ask = [facts.reads[name] for name in ("cell", "s0", "s1_max", "growth", "growth")]
    assert timeline.sole(*ask).tolist() == [NONE]
    assert len(History(facts, cell).possible(5, 6)) == 2


def test_cost_of_a_read_does_not_grow_with_history(monkeypatch: pytest.MonkeyPatch) -> None:
    writes = 2000
    cell = history(*(("write", 10 * i + 1, 10 * i + 3, {}) for i in range(writes)))
    made = 0
    original = Facts.event

    def counted(self: Facts, where: int) -> Event:
        nonlocal made
        made += 1
        return original(self, where)

    monkeypatch.setattr(Facts, "event", counted)
    for i in range(writes):
        assert spans(cell.possible(10 * i + 5, 10 * i + 9)) == {(10 * i + 1, 10 * i + 3)}
    assert made == writes
