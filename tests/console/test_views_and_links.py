"""Views: ranges of time as written, the modes, and addresses that come back byte for byte."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.core.looking import looking
from console.core.places import TABS, Place
from console.core.time_range import ALL, BadRange, Span, TimeRange, moment_us, parse_range, rfc3339
from console.core.view import SPEEDS, TRANSITIONS, Cue, Mode, Replay, Sort, View
from console.core.view_link import (
    OPTIONS,
    BadLink,
    absolute,
    asks_absolute,
    from_link,
    from_query,
    to_command,
    to_link,
    to_query,
)

NOW = 1_790_000_000_000_000  # 2026-09-21T14:13:20Z
MINUTE = 60_000_000
INCIDENTS = {"I-98584c01": Span(NOW - 10 * MINUTE, NOW - 5 * MINUTE)}


@pytest.mark.parametrize(
    ("text", "span", "follows"),
    [
        ("all", Span(None, None), True),
        ("now-15m", Span(NOW - 15 * MINUTE, None), True),
        ("-6h", Span(NOW - 360 * MINUTE, None), True),
        ("-1h..now", Span(NOW - 60 * MINUTE, NOW), True),
        ("-1h..-30m", Span(NOW - 60 * MINUTE, NOW - 30 * MINUTE), False),
        ("2026-09-21T14:00:00Z..2026-09-21T14:13:20Z", Span(NOW - 800_000_000, NOW), False),
        ("..2026-09-21T14:13:20Z", Span(None, NOW), False),
        ("I-98584c01±2m", Span(NOW - 12 * MINUTE, NOW - 3 * MINUTE + 1), False),
        ("I-98584c01+-30s", Span(NOW - 10 * MINUTE - 30_000_000, NOW - 5 * MINUTE + 30_000_001), False),
        ("I-98584c01", Span(NOW - 12 * MINUTE, NOW - 3 * MINUTE + 1), False),
        ("2026-09-21T14:13:20Z±500ms", Span(NOW - 500_000, NOW + 500_001), False),
    ],
)
def test_ranges_mean_what_is_written(text, span, follows):
    wanted = parse_range(text)
    assert wanted.resolve(NOW, INCIDENTS.get) == span
    assert wanted.follows is follows
    assert parse_range(wanted.text) == wanted


@pytest.mark.parametrize(
    "text",
    ["yesterday", "-15x", "now+3m", "..", "I-98584c01±", "I-98584c01±2", "now±2m", "2026-13-01..now", "a..b", "-1h±2m"],
)
def test_what_is_no_range_is_refused(text):
    with pytest.raises(BadRange):
        parse_range(text)


def test_a_range_that_ends_before_it_begins_and_an_incident_that_is_not_there():
    for text in ("-5m..-10m", "2027-01-01..now", "I-0000±2m"):
        with pytest.raises(BadRange):
            parse_range(text).resolve(NOW, INCIDENTS.get)


def test_a_frozen_range_means_the_same_times_later():
    for text in ("now-15m", "-1h..-30m", "I-98584c01±2m", "all"):
        wanted = parse_range(text)
        frozen = wanted.frozen(NOW, INCIDENTS.get)
        assert frozen.is_fixed
        later = frozen.resolve(NOW + 999 * MINUTE, {}.get)
        meant = wanted.resolve(NOW, INCIDENTS.get)
        assert later == replace(meant, end_us=NOW if meant.end_us is None else meant.end_us)
        assert frozen.frozen(NOW + MINUTE, {}.get) is frozen


def test_a_fixed_range_ends_following_and_following_gives_up_a_fixed_range():
    fixed = View().with_range(parse_range("..2026-09-21T14:13:20Z"))
    assert (fixed.mode, fixed.paused) == (Mode.PAUSED, True)
    assert fixed.on(Cue.TOGGLE) == View()
    hour = View().with_range(parse_range("2026-09-21T13:13:20Z..2026-09-21T14:13:20Z")).followed(NOW, {}.get)
    assert (hour.mode, hour.range.text) == (Mode.LIVE, "-3600s")
    assert View().with_range(parse_range("-6h")).mode is Mode.LIVE


@settings(deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(Cue), max_size=8), st.sampled_from(["all", "-6h", "-1h..-30m", "I-98584c01±2m"]))
def test_a_live_view_never_stands_still_and_only_a_replay_has_a_speed(cues, text):
    view = View().with_range(parse_range(text))
    for cue in cues:
        before = view
        view = view.on(cue)
        assert view.mode is TRANSITIONS.get((before.mode, cue), before.mode)
        assert view.mode is not Mode.LIVE or view.range.follows
        assert (view.replay is not None) == (view.mode is Mode.REPLAY)


def test_a_replay_moves_by_its_speed_and_stops_at_the_end():
    view = View(cursor_us=NOW).on(Cue.PLAY)
    view = replace(view, replay=view.replay.faster(2))
    assert view.replay == Replay(4.0, True)
    moved = view.played(1_000_000, NOW - MINUTE, NOW + MINUTE)
    assert moved.cursor_us == NOW + 4_000_000
    assert moved.toggled().played(1_000_000, NOW, NOW + MINUTE) == moved.toggled()
    ended = moved.played(999 * MINUTE, NOW, NOW + MINUTE)
    assert (ended.cursor_us, ended.replay.is_playing) == (NOW + MINUTE, False)
    assert (Replay(SPEEDS[0]).faster(-1).speed, Replay(SPEEDS[-1]).faster(9).speed) == (SPEEDS[0], SPEEDS[-1])
    assert ended.on(Cue.STOP).replay is None


TEXTS = st.text(min_size=1, max_size=12)
FIXED = [
    "",
    "-6h",
    "now-15m..now",
    "-1h..-30m",
    "..2026-09-21T14:13:20Z",
    "I-98584c01±2m",
    "2026-09-21T14:13:20.000007Z±1s",
]


def made(place: Place, wanted: str, paused: bool, replay: Replay | None, **rest) -> View:
    view = View(place=place, **rest).with_range(parse_range(wanted))
    if replay is not None:
        return replace(view, mode=Mode.REPLAY, replay=replay)
    return view.on(Cue.FIX) if paused else view


VIEWS = st.builds(
    made,
    place=st.sampled_from(TABS), wanted=st.sampled_from(FIXED), paused=st.booleans(),
    replay=st.none() | st.builds(Replay, st.sampled_from(SPEEDS), st.booleans()),
    cursor_us=st.none() | st.integers(0, 4 * 10**15), mark_us=st.none() | st.integers(0, 4 * 10**15), filter=st.text(max_size=12),
    back=st.none() | st.sampled_from([parse_range(text) for text in ("all", "-15m", FIXED[-1])]),
    sort=st.none() | st.builds(Sort, st.sampled_from(["severity", "first"]), st.booleans()),
    incident=st.none() | TEXTS, rid=st.none() | TEXTS, page=st.none() | st.integers(0, 10**9), pool=st.none() | TEXTS,
    title=st.text(max_size=12),
    ledger=st.one_of(st.none(), st.text(min_size=1, max_size=12)),
    options=st.dictionaries(st.sampled_from(sorted(OPTIONS)), TEXTS).map(lambda d: tuple(sorted(d.items()))),
)  # fmt: skip


@settings(deadline=None, derandomize=True, max_examples=200)
@given(VIEWS)
def test_a_view_comes_back_from_its_address_and_the_address_byte_for_byte(view):
    link = to_link(view)
    assert link.isascii()
    assert from_link(link) == view
    assert to_link(from_link(link)) == link


def test_an_open_incident_is_in_the_path_and_what_the_moment_decides_in_no_address():
    view = View(place=Place.INCIDENT, incident="I-98584c01", rid="resp 1&2", page=7).on(Cue.OPEN)
    assert to_link(view) == "/incidents/I-98584c01?resp=resp%201%262&page=7"
    assert from_link(to_link(view)) == replace(view, mode=Mode.LIVE)
    assert to_query(replace(View(), mode=Mode.FINISHED)) == ""


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("/nowhere", "there is no screen"), ("/incidents/a/b", "there is no screen"), ("/held?rows=1&colour=2", "knows no colour"),
        ("/held?page=x", "page is 'x'"), ("/held?page=²", "whole number"), ("/held?mode=held", "mode is 'held'"),
        ("/held?mode=replay&speed=3", "speed is '3'"),
        ("/held?q=a&q=b", "q stands twice"), ("/held?from=soon", "cannot read 'soon'"), ("/held?around=I-1&to=now", "stands alone"),
    ],
)  # fmt: skip
def test_what_cannot_be_opened_says_why(link, words):
    with pytest.raises(BadLink, match=words):
        from_link(link)


def test_a_shared_address_has_its_times_written_out():
    assert asks_absolute("from=-6h&share=abs")
    assert not asks_absolute("from=-6h")
    with pytest.raises(BadLink, match="it can be abs"):
        asks_absolute("share=rel")
    shared = absolute(from_query("from=now-15m&share=abs"), NOW, INCIDENTS.get)
    assert to_query(shared) == "from=2026-09-21T13:58:20Z&to=2026-09-21T14:13:20Z"
    assert shared.mode is Mode.PAUSED
    assert TimeRange("", rfc3339(NOW)).resolve(0, {}.get) == Span(None, NOW)


def test_the_command_opens_the_same_view():
    ledger = Path("/data/a b")
    assert to_command(View(), ledger) == "console --ledger '/data/a b'"
    assert to_command(View(), ledger, Path("/b")) == "console --ledger '/data/a b' --ledger /b"
    assert (
        to_command(View(place=Place.INCIDENT, incident="I-1"), ledger) == "console --ledger '/data/a b' --incident I-1"
    )
    view = View(place=Place.INCIDENTS, range=ALL, filter="severity:critical -tenant:a")
    assert (
        to_command(view, ledger) == "console --ledger '/data/a b' --view '/incidents?q=severity:critical%20-tenant:a'"
    )


@pytest.mark.parametrize("name", ["color", "bin", "baseline", "tab"])
def test_what_nothing_reads_is_refused_in_an_address(name):
    with pytest.raises(BadLink, match=f"knows no {name}"):
        from_link(f"/pages?{name}=x")


def test_an_order_by_what_no_table_has_is_said_and_one_of_another_screen_waits(finished):
    for column in ("severity", "t", "pages", "since", "hits", "runbook", "donor_rid"):
        assert looking(finished.rollup, View(sort=Sort(column)), 0).fault == ""
    at = looking(finished.rollup, View(sort=Sort("NONSENSE"), filter="severity>=9"), 0)
    assert at.fault.endswith("order: there is no column NONSENSE in any table")
    assert (at.view.sort, at.view.filter) == (None, "")


def test_a_pause_of_a_moment_is_in_the_address_until_it_is_left():
    link = "/held?at=2026-09-21T14:13:20Z&mode=paused&as_of=2026-09-21T14:13:21Z"
    view = from_link(link)
    assert to_link(view) == link
    assert view.toggled().as_of_us is None
    assert view.followed(0, lambda _: None).as_of_us is None
    assert view.on(Cue.PLAY).as_of_us is None
    assert to_link(from_link("/held?as_of=2026-09-21T14:13:21Z")) == "/held?mode=paused&as_of=2026-09-21T14:13:21Z"
    standing = view.pause_replayed()
    assert (standing.mode, standing.cursor_us, standing.replay.is_playing) == (Mode.REPLAY, view.as_of_us, False)
    with pytest.raises(BadLink, match="does not go with mode=replay"):
        from_link("/held?mode=replay&as_of=2026-09-21T14:13:21Z")


def test_a_moment_is_read_to_the_microsecond():
    assert moment_us("1970-01-01T00:00:16.080059Z") == 16_080_059
