"""What people say of incidents and the views they save: kept in lines, ended by themselves, never beside the evidence."""

from dataclasses import replace

import pytest

from console.core.marks import Severity
from console.core.places import Place
from console.core.saved_views import SavedViewError, load_views, save_view, views_file
from console.core.time_range import parse_range
from console.core.triage import Act, State, TriageBook, TriageError, silences, standing, state_directory
from console.core.view import Sort, View

HOUR = 3_600_000_000


@pytest.fixture
def incident(finished):
    return replace(finished.incidents[0], growing=True)


def state(incident, book, clock) -> State:
    return standing(incident, book.entries(), clock()).state


def test_an_acknowledged_incident_is_open_again_when_it_grows(book, incident, clock):
    assert state(incident, book, clock) is State.OPEN
    book.ack(incident, "looking")
    stands = standing(incident, book.entries(), clock())
    assert (stands.state, stands.by) == (State.ACKED, "kl")
    assert state(replace(incident, last_seen_us=incident.last_seen_us + 1), book, clock) is State.OPEN
    assert state(replace(incident, responses=incident.responses + 1), book, clock) is State.OPEN
    assert state(replace(incident, id="I-other"), book, clock) is State.OPEN


def test_what_gets_graver_is_open_again_whatever_was_said(book, incident, clock):
    lesser = replace(incident, severity=Severity.P3)
    book.ack(lesser)
    assert [state(replace(lesser, severity=each), book, clock) for each in (Severity.P4, Severity.P3, Severity.P2)] == [
        State.ACKED, State.ACKED, State.OPEN,
    ]  # fmt: skip
    book.silence(lesser, HOUR, "known")
    assert [state(replace(lesser, severity=each), book, clock) for each in (Severity.P4, Severity.P3, Severity.P2)] == [
        State.SILENCED, State.SILENCED, State.OPEN,
    ]  # fmt: skip
    with pytest.raises(TriageError, match="within seven days"):
        book.silence(lesser, 7 * 24 * HOUR + 1, "for ever")


def test_a_silence_ends_with_its_time_and_says_that_it_is_back(book, incident, clock):
    book.silence(incident, 2 * HOUR, "known")
    (silence,) = silences([incident], book.entries(), clock())
    assert (silence.left_us, silence.entry.words, silence.entry.who) == (2 * HOUR, "known", "kl")
    clock.us += 2 * HOUR - 1
    assert state(incident, book, clock) is State.SILENCED
    clock.us += 1
    assert (state(incident, book, clock), silences([incident], book.entries(), clock())) == (State.BACK, ())
    book.ack(incident)
    assert state(incident, book, clock) is State.ACKED


def test_a_silence_ends_with_its_incident_and_stays_ended_when_that_comes_back(book, incident, clock):
    book.silence(incident, 2 * HOUR)
    over = replace(incident, growing=False)
    assert state(over, book, clock) is State.OPEN
    assert [entry.act for entry in book.end_silences([incident, over])] == [Act.UNSILENCE]
    assert book.end_silences([over]) == ()
    assert state(incident, book, clock) is State.OPEN


def test_a_silence_needs_an_end_an_incident_that_goes_on_and_a_note_words(book, incident):
    for wrong in (
        lambda: book.silence(incident, 0),
        lambda: book.silence(replace(incident, growing=False), HOUR),
        lambda: book.note(incident, " "),
    ):
        with pytest.raises(TriageError):
            wrong()
    assert book.entries() == ()


def test_lines_are_only_added_and_a_cut_one_is_left_out(book, incident, clock):
    first = book.note(incident, "paged; stöpping dec-3\nfirst")
    before = book.path.read_bytes()
    second = book.note(incident, "approved")
    assert book.path.read_bytes().startswith(before)
    assert book.path.stat().st_mode & 0o077 == 0
    assert standing(incident, book.entries(), clock()).notes == (first, second)
    book.path.write_bytes(book.path.read_bytes()[:-3])
    assert book.entries() == (first,)
    book.path.write_bytes(b"{}\n" + before)
    assert book.entries() == (first,)
    (fault,) = book.faults()
    assert "line 1" in fault


def test_a_cut_line_does_not_swallow_the_next(book, incident):
    first = book.note(incident, "one")
    book.path.write_bytes(book.path.read_bytes() + b'{"incident": "I-')
    second = book.note(incident, "two")
    assert book.entries() == (first, second)
    assert len(book.faults()) == 1


def test_nothing_is_kept_inside_a_ledger(finished_ledger, clock):
    with pytest.raises(TriageError, match="never written to"):
        TriageBook(finished_ledger / "state", finished_ledger, who="kl", now_us=clock)
    assert str(state_directory({"XDG_STATE_HOME": "/s"})) == "/s/kvwitness"
    assert str(state_directory({"HOME": "/h"})) == "/h/.local/state/kvwitness"


VIEW = View(
    place=Place.INCIDENTS,
    range=parse_range("-6h"),
    filter='severity:critical "a\\b"',
    sort=Sort("first", True),
    title="ünd\t",
)


def test_a_saved_view_comes_back_and_one_of_its_name_is_replaced(tmp_path):
    path = tmp_path / "config" / "views.toml"
    assert load_views(path).views == {}
    save_view(path, "other", View())
    save_view(path, "on-call", View(filter="x"))
    save_view(path, "on-call", VIEW)
    assert load_views(path).views == {"on-call": VIEW, "other": View()}


def test_a_view_that_cannot_be_opened_hides_no_other(tmp_path):
    path = tmp_path / "views.toml"
    save_view(path, "good", VIEW)
    path.write_text(path.read_text() + 'bad = "/nowhere"\n')
    found = load_views(path)
    assert (found.views, list(found.faults)) == ({"good": VIEW}, ["bad"])
    assert "there is no screen" in found.faults["bad"]


@pytest.mark.parametrize("text", ["views = 3", "[views]\nx = 3", "no toml ["])
def test_a_file_that_is_none_is_said_and_not_overwritten(tmp_path, text):
    path = tmp_path / "views.toml"
    path.write_text(text)
    with pytest.raises(SavedViewError):
        load_views(path)
    with pytest.raises(SavedViewError):
        save_view(path, "name", View())
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["", "a b", "x" * 41, 'a"b', "a/b"])
def test_what_is_no_name_is_refused(tmp_path, name):
    with pytest.raises(SavedViewError, match="no name"):
        save_view(tmp_path / "views.toml", name, View())


def test_views_are_where_the_user_says():
    assert str(views_file({"XDG_CONFIG_HOME": "/c"})) == "/c/kvwitness/views.toml"
