"""How an incident stands with the people on call, in words: who said what of it, when, and until when it is silent.

Invariant: what people wrote has been through `printable`; times are absolute, and what is left of a silence stands beside.
"""

from __future__ import annotations

from console.core.incident_words import Fact
from console.core.printable import counted, printable
from console.core.times import clock, duration, moment
from console.core.triage import Act, Silence, Standing, State


def standing_words(stands: Standing, now_us: int) -> str:
    """`acknowledged by kl at 2026-09-21 14:02:31: looking`; `now_us`: as it was given to `standing`."""
    last = stands.last
    if last is None:
        return "open"
    said = f"{printable(last.who)} at {moment(last.at_us)}" + (f": {printable(last.words)}" if last.words else "")
    until = stands.until_us or now_us
    over = "it got graver in spite of a silence" if stands.by else "a silence has ended with the incident"
    words = {
        State.ACKED: "acknowledged",
        State.SILENCED: f"silent until {moment(until)}, {duration(until - now_us)} left,",
        State.BACK: f"open again since {moment(until)}: the time of a silence is over,",
    }
    again = {
        Act.ACK: "open again: it grew or got graver after it was acknowledged",
        Act.SILENCE: f"open: {over},",
        Act.UNSILENCE: "open: a silence was ended",
    }
    return f"{words.get(stands.state) or again[last.act]} by {said}"


def standing_short(stands: Standing, now_us: int) -> str:
    """Who, and when or for how long, for a table: `kl 14:02:31`, `kl 1h52m left`; empty where nobody said anything."""
    last = stands.last
    if last is None:
        return ""
    if stands.state is State.SILENCED:
        return f"{printable(last.who)} {duration((stands.until_us or now_us) - now_us)} left"
    return f"{printable(last.who)} {clock(last.at_us)}"


def silence_words(silence: Silence, now_us: int) -> str:
    """`I-98584c01: 1h 30m left, until 2026-09-21 17:13:20, by kl 30m ago: known`; what is about to end says so."""
    entry = silence.entry
    soon = "ABOUT TO END, " if silence.ends_soon else ""
    why = printable(entry.words) if entry.words else "no reason given"
    ends = f"{duration(silence.left_us)} left, until {moment(entry.until_us)}"
    return f"{entry.incident}: {soon}{ends}, by {printable(entry.who)} {duration(now_us - entry.at_us)} ago: {why}"


def standing_facts(stands: Standing, now_us: int) -> tuple[Fact, ...]:
    """How it stands and every note of it, the latest first."""
    notes = tuple(
        Fact("note", f"{moment(note.at_us)} {printable(note.who)}: {printable(note.words)}")
        for note in reversed(stands.notes)
    )
    return (Fact("standing", standing_words(stands, now_us)), *notes)


def few_facts(stands: Standing, now_us: int) -> tuple[Fact, ...]:
    """The same in little room: nothing where nobody said anything, of notes the latest."""
    standing, *notes = standing_facts(stands, now_us)
    if stands.last is None and not notes:
        return ()
    more = f" (and {counted(len(notes) - 1, 'earlier note')})" if len(notes) > 1 else ""
    return (standing, *(Fact("note", note.words + more) for note in notes[:1]))
