"""The window over events: never above its size, no hole, nothing lost while it slides."""

import pytest
from scripted_ledger import ACME, Scene, ordinary

from console.core.event_window import MOST_ROWS, EventWindow, EventWindows, Looked, words_of
from console.core.events import EventKey, Events, key_at
from console.core.filter_language import parse_filter
from console.core.source import LedgerSource
from console.core.time_range import Span
from forensics.verdict import Verdict


def looked(text: str = "", span: Span | None = None) -> Looked:
    return Looked(parse_filter(text), span or Span(), 0)


def keys(window: EventWindow) -> list[EventKey]:
    return [key_at(window.rows, i) for i in range(len(window.rows))]


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """Some 700 events of one tenant."""
    scene = Scene(tmp_path_factory.mktemp("events") / "ledger")
    for n in range(24):
        ordinary(scene, f"resp-{n:02}", ACME, 1, 4)
    scene.close()
    return LedgerSource(scene.directory, now_us=lambda: scene.now, engine="replay").read()


@pytest.fixture(scope="module")
def every(long) -> list[EventKey]:
    events = Events(long.ledger)
    page = events.after(None, parse_filter(""), Span(), 0, len(events))
    return [key_at(page.rows, i) for i in range(len(page.rows))]


@pytest.mark.parametrize("text", ["", "table:pages", "rid:resp-1*", "-table:steps reserve"])
@pytest.mark.parametrize("first", [True, False])
def test_sliding_from_one_end_to_the_other_shows_every_row_and_never_more_than_fit(long, every, text, first):
    windows, at = EventWindows(long), looked(text)
    window = windows.first(at) if first else windows.last(at)
    assert (window.earlier if first else window.later) is None
    seen = keys(window)
    for _ in range(200):
        moved = windows.down(window, at) if first else windows.up(window, at)
        if moved is window:
            break
        held = keys(moved)
        assert len(held) <= MOST_ROWS
        assert held == sorted(held)
        new = [key for key in held if key not in set(seen)]
        seen = seen + new if first else new + seen
        window = moved
    events = Events(long.ledger)
    whole = events.after(None, parse_filter(text), Span(), 0, len(every))
    assert seen == [key_at(whole.rows, i) for i in range(len(whole.rows))]


def test_what_was_let_go_is_found_again_on_the_way_back(long, every):
    windows, at = EventWindows(long), looked()
    window = windows.last(at)
    assert keys(window) == every[-MOST_ROWS:]
    up = windows.up(windows.up(window, at), at)
    assert keys(up) == every[-MOST_ROWS - 200 : -200]
    assert keys(windows.down(windows.down(up, at), at)) == every[-MOST_ROWS:]


def test_a_place_is_shown_with_both_sides(long, every):
    middle = every[len(every) // 2]
    window = EventWindows(long).around(middle, looked())
    assert keys(window) == every[len(every) // 2 - 100 : len(every) // 2 + 100]
    assert window.place_of(middle) == 100
    assert window.place_of(EventKey(0, "nobody", 1, 1)) is None


def test_what_is_hidden_is_counted_between_the_ends(long, every):
    windows, at = EventWindows(long), looked("table:transfers")
    window = windows.last(at)
    for _ in range(20):
        window = windows.up(window, at)
    assert window.earlier is None
    assert window.later is None
    assert window.hidden == len(every) - len(window.rows)
    assert words_of(window) == f"{len(window.rows)} of {len(every)} events, {window.hidden} hidden by the filter"


def test_a_rare_row_is_reached_in_steps_that_say_that_there_is_more(long, every, monkeypatch):
    monkeypatch.setattr("console.core.events.MAX_SEARCHED", 64)
    monkeypatch.setattr("console.core.events._BLOCK", 64)
    windows, at = EventWindows(long), looked("rid:resp-00 op:receive")
    window = windows.last(at)
    assert len(window.rows) == 0
    assert "more above" in words_of(window)
    steps = 0
    while window.earlier is not None:
        window, steps = windows.up(window, at), steps + 1
    assert steps >= len(every) // 64 - 1
    assert len(window.rows) == 3
    assert window.hidden == len(every) - 3


def test_a_term_without_a_column_is_said(long):
    assert words_of(EventWindows(long).last(looked("detector:D4"))).endswith(
        "detector:D4 names no column of events, more above"
    )


def test_verdicts_stand_beside_the_rows_of_their_responses(finished):
    window = EventWindows(finished).last(looked("rid:resp-b1"))
    assert window.verdicts == {"resp-b1": Verdict.CONTAMINATED}
