"""Lines that several terminal screens share: header, breadcrumb, rules, footer, counts.

Invariant: pure functions of the desk and a width; nothing returned is wider than the width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from console.core.actions import Action
from console.core.desk import Desk
from console.core.looking import Looking
from console.core.marks import SEVERITY_MARKS, VERDICT_MARKS, Severity
from console.core.own_time import own_words
from console.core.owners import Owners
from console.core.places import TABS, Place
from console.core.printable import counted, printable, shorten
from console.core.rollup import Rollup
from console.core.snapshot import Snapshot
from console.core.source_states import SourceState, states_words
from console.core.standing_rows import open_by_severity
from console.core.times import age, clock
from console.core.view import Mode
from console.tui.palette import Palette
from forensics.verdict import Verdict

_ALWAYS = 2


def header(
    desk: Desk,
    stood: Rollup | None,
    name: str,
    now_us: int,
    width: int,
    palette: Palette,
    *,
    writes: bool = False,
    refresh_s: int = 1,
) -> Text:
    """Program, ledger, mode in words, time of the data in UTC, open incidents by severity, and RO, or OP where it may
    be written. `stood`: the desk's rollup, and how its incidents stand; `refresh_s`: seconds between looks.
    """
    line = Text(" kvwitness  ", end="", no_wrap=True, style=palette.strong)
    line.append(shorten(printable(name), max(width - 62, 8)), style=palette.quiet)
    line.append("  ")
    line.append(
        mode_words(desk, now_us, refresh_s), style="reverse bold" if desk.view.paused or desk.is_remembered else "bold"
    )
    if stood is not None:
        line.append(f"  {clock(stood.data_us)}  ")
        is_open = open_by_severity(stood)
        for severity, mark in SEVERITY_MARKS.items():
            n = is_open[severity]
            line.append(f" {mark.glyph}{n}", style=palette.severity(severity) if n else palette.quiet)
        fullest = next(iter(stood.held), None)
        if fullest is not None and fullest.share is not None and line.cell_len + 16 <= width:
            line.append(f"  held {fullest.share:.0%}")
    line.append("  OP" if writes else "  RO")
    return cut(line, width)


def tab_line(tabs: Sequence[Place], here: Place, width: int, palette: Palette) -> Text:
    """The screens by their keys, the present one in brackets; an incident counts as one of Incidents."""
    here = Place.INCIDENTS if here is Place.INCIDENT else here
    line = Text("", end="", no_wrap=True)
    for number, place in enumerate(TABS, start=1):
        if place not in tabs:
            continue
        words = f"{number} {place.value.capitalize()}"
        line.append(*((f"[{words}]", palette.strong) if place is here else (f" {words} ", palette.quiet)))
    return cut(line, width)


def mode_words(desk: Desk, now_us: int, refresh_s: int = 1) -> str:
    """LIVE, PAUSED, FINISHED, in words, with the age where the view stands still."""
    if desk.remembered is not None and desk.is_remembered:
        return f"REMEMBERED −{age(now_us - desk.remembered.taken_us)}"
    if desk.merged is not None and desk.rollup is not None:
        paused = f"PAUSED −{age(now_us - desk.rollup.taken_us)}{newer_words(desk)}"
        return paused if desk.view.paused else desk.merged.words
    if desk.shown is None:
        return "READING" if desk.failure is None else "NO DATA"
    return _mode_of_one(desk, desk.shown, now_us, refresh_s)


def newer_words(desk: Desk) -> str:
    """What has come in since the view was paused."""
    return f", {desk.newer_rows:,} newer" if desk.newer_rows else ""


def _mode_of_one(desk: Desk, shown: Snapshot, now_us: int, refresh_s: int) -> str:
    if desk.is_stale:
        return f"STALE −{age(desk.look_age_us)}"
    old = age(now_us - shown.taken_us)
    replay = desk.view.replay
    if replay is not None:
        # What is shown may be older than the cursor by what judging takes: the header's time of the data says of when it is.
        return f"REPLAY ×{replay.speed:g} " + ("" if replay.is_playing else "standing ") + clock(desk.view.cursor_us)
    if desk.view.paused:
        return f"PAUSED −{old}{newer_words(desk)}"
    live = f"LIVE, judged −{age(desk.unjudged_us)}" if desk.unjudged_us else f"LIVE {refresh_s}s"
    return {Mode.LIVE: live, Mode.FINISHED: "FINISHED"}.get(desk.mode, desk.mode.value.upper())


def with_states(line: Text, states: Sequence[SourceState], width: int, palette: Palette) -> Text:
    """A line with how each of several ledgers stands at its right: in the room that there is, and more where one is in trouble,
    which stands first."""
    words, troubled = states_words(states), any(state.is_troubled for state in states)
    line.rstrip()
    room = max(width - line.cell_len - 3, width * 2 // 3 if troubled else 0)
    if words:
        line.truncate(max(width - min(len(words), room) - 2, 0), overflow="ellipsis", pad=True)
        line.append(f"  {words}", style="bold" if troubled else palette.quiet)
    return cut(line, width)


def counts_line(known: Rollup, width: int, palette: Palette) -> Text:
    """Responses by verdict, what is not judged yet, and how whole the record is."""
    line = Text(f" {counted(known.responses, 'response')} ", end="", no_wrap=True)
    for verdict in Verdict:
        n, mark = known.counts[verdict], VERDICT_MARKS[verdict]
        word = f" {mark.word}" if n or width >= 100 else ""
        line.append(f" {mark.glyph} {n}{word} ", style=palette.verdict(verdict, bold=True) if n else palette.quiet)
    if known.judging:
        line.append(f" {known.judging} still running", style=palette.quiet)
    return cut(line, width)


def view_line(at: Looking, said: str, width: int, palette: Palette, right: str = "") -> Text:
    """The view in words: title, range, filter, sort, what is left; a fault of any of them instead. `right`: the record."""
    line, view = Text(" ", end="", no_wrap=True), at.view
    if at.fault:
        line.append(f"! {printable(at.fault)}", style="bold")
        return cut(line, width)
    if view.title:
        line.append(f"{printable(view.title)}  ", style=palette.strong)
    line.append(view.range.text or "all of the record", style=palette.quiet)
    if own_words(view):
        line.append(f" ({own_words(view)})", style=palette.strong)
    if at.now_words:
        line.append(f" ({at.now_words})", style=palette.quiet)
    if view.cursor_us is not None:
        line.append(f"  at {clock(view.cursor_us)}", style=palette.strong)
    if view.mark_us is not None:
        line.append(f"  m {clock(view.mark_us)}", style=palette.strong)
    if view.filter:
        line.append(f"  /{printable(view.filter)}", style=palette.strong)
    if view.sort is not None:
        line.append(f"  sort {'▼' if view.sort.descending else '▲'}{printable(view.sort.column)}", style=palette.quiet)
    if said:
        line.append(f"  {said}", style=palette.quiet)
    if right and line.cell_len + len(right) + 3 <= width:
        line.append(" " * (width - line.cell_len - len(right) - 1))
        line.append(right, style="bold" if "BROKEN" in right or "problem" in right else palette.quiet)
    return cut(line, width)


def rule(title: str, width: int, palette: Palette, right: str = "") -> Text:
    """── TITLE ───────── right ──."""
    title = shorten(title, max(width - 6, 3))
    line = Text("── ", end="", no_wrap=True, style=palette.quiet)
    line.append(title, style=palette.strong)
    line.append(" ")
    tail = f" {right} ──" if right and line.cell_len + len(right) + 6 <= width else ""
    line.append("─" * max(width - line.cell_len - len(tail), 0) + tail)
    return cut(line, width)


def footer(hints: Iterable[Action], width: int, palette: Palette) -> Text:
    """At most eight hints, of which the last two always have room; the rest is under `?`."""
    line = Text(" ", end="", no_wrap=True)
    shown = list(hints)
    while len(shown) > _ALWAYS and 1 + sum(len(f"{a.shown} {a.hint_words}") + 2 for a in shown) > width:
        del shown[-_ALWAYS - 1]
    for action in shown:
        line.append(action.shown, style=palette.strong)
        line.append(f" {action.hint_words}  ", style=palette.quiet)
    return cut(line, width)


def owner_text(owners: Owners, tenant: str | None, palette: Palette, words: str = "") -> Text:
    """A tenant as its letter on its hue, then words."""
    owner = owners.of(tenant)
    text = Text(f" {owner.letter} ", style=palette.owner(owner.colour), end="")
    return text.append(f" {words}", style="default on default") if words else text


def cut(line: Text, width: int) -> Text:
    """The line at exactly `width` cells."""
    line.truncate(width, overflow="ellipsis", pad=True)
    return line


def severity_text(severity: Severity, palette: Palette) -> Text:
    """▲P1."""
    mark = SEVERITY_MARKS[severity]
    return Text(f"{mark.glyph}{mark.word}", style=palette.severity(severity), end="")


def verdict_text(verdict: Verdict, palette: Palette, words: str = "") -> Text:
    """✗ contaminated."""
    mark = VERDICT_MARKS[verdict]
    return Text(f"{mark.glyph} {words or mark.word}", style=palette.verdict(verdict, bold=True), end="")
