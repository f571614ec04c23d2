"""The Runs screen's lines: runbooks, runs, steps with what they expect, and what came of them.

Invariant: every state has a glyph and a word; what a run stored is drawn through `printable`.
"""

from __future__ import annotations

from rich.text import Text

from console.core.printable import NOTHING, counted, printable, shorten
from console.core.run_list import STEP_MARKS, RunList, expectation, located, outcome, run_words
from console.core.times import clock, moment
from console.tui.columns import Column, fit, heading, row_text
from console.tui.line_list import CURSOR, Line
from console.tui.lines import cut, rule
from console.tui.palette import Palette
from runbooks.model import LocatedStep, Runbook
from runbooks.states import Conclusion, RunState
from runbooks.store import StoredRun, StoredStep

BOOK, RUN = "book:", "run:"
"""Beginnings of the keys of the first list's lines."""
DETAIL_LINES = 6


def first_list(known: RunList, width: int, palette: Palette) -> list[Line]:
    """Runbooks, then runs, the latest first."""
    lines = []
    for book in known.runbooks:
        head = book.head
        text = Text(f"{head.id}  ", style=palette.strong, end="").append(f"{head.version}  severity {head.severity}  ")
        text.append(f"{printable(head.title)}  ").append(printable(", ".join(head.alerts)), style=palette.quiet)
        lines.append(Line(BOOK + head.id, text))
    for run in known.runs:
        urgent = run.state in (RunState.WAITING, RunState.INTERRUPTED) or run.conclusion is Conclusion.CONFIRMED
        text = Text(f"{moment(run.started_us)[:19]}Z  ", style=palette.quiet, end="")
        text.append(f"{printable(run.runbook)} {printable(run.version)}  ")
        text.append(run_words(run), style=palette.strong if urgent else palette.quiet)
        lines.append(
            Line(RUN + run.run_id, text.append(f"  {printable(run.target) if run.target else ''}", style=palette.quiet))
        )
    if known.more:
        lines.append(Line(None, Text(f"… {known.more} earlier runs", end="", style=palette.quiet)))
    return lines


def steps_of_book(book: Runbook, width: int, palette: Palette) -> tuple[Text, list[Line]]:
    """The steps that a run of it would take."""
    columns: list[Column[LocatedStep]] = [
        Column("STEP", 14, lambda s: printable(s.step.id)),
        Column("PHASE", 9, lambda s: s.step.phase.value),
        Column("USES", 22, lambda s: printable(s.step.uses), priority=1),
        Column("IF NOT", 12, lambda s: printable(s.step.on_fail), priority=2),
        Column("WHAT", 20, lambda s: printable(s.heading), flexible=True),
    ]
    fitted = fit(columns, width - len(CURSOR) - 1)
    return _titles(heading(fitted), palette), [Line(s.step.id, row_text(fitted, s)) for s in book.steps]


def steps_of_run(run: StoredRun, width: int, palette: Palette) -> tuple[Text, list[Line]]:
    """The steps with their states."""
    columns: list[Column[StoredStep]] = [
        Column("", 1, lambda s: STEP_MARKS[s.state][0]),
        Column("STEP", 14, lambda s: printable(s.step_id)),
        Column("PHASE", 9, lambda s: printable(s.phase), priority=1),
        Column("STATE", 18, lambda s: STEP_MARKS[s.state][1]),
        Column("AT UTC", 9, lambda s: clock(s.changed_us), priority=2),
        Column("CAME OUT", 20, lambda s: printable(outcome(s)) if s.findings else NOTHING, flexible=True),
    ]
    fitted = fit(columns, width - len(CURSOR) - 1)
    return _titles(heading(fitted), palette), [Line(s.step_id, row_text(fitted, s)) for s in run.steps]


def _titles(text: Text, palette: Palette) -> Text:
    return Text(" " * len(CURSOR), style=palette.quiet, end="").append_text(text)


def step_detail(book: Runbook | None, run: StoredRun | None, step_id: str, width: int, palette: Palette) -> list[Text]:
    """What a step does, expects and found, in DETAIL_LINES lines."""
    step = located(book, run, step_id)
    stored = next((s for s in run.steps if s.step_id == step_id), None) if run is not None else None
    lines = [rule(f"STEP {step_id}", width, palette, "" if stored is None else STEP_MARKS[stored.state][1])]
    if step is None:
        lines.append(
            Text(
                " the runbook has changed since this run: what the step expected is not known here", style=palette.quiet
            )
        )
    else:
        lines.append(Text(f" {printable(step.heading)}", style=palette.strong))
        expects = "; ".join(expectation(p) for p in step.step.expect)
        lines.append(Text(f" expects  {printable(expects)}"))
        lines.append(Text(f" else     {step.step.on_fail}, within {step.step.timeout:g} s", style=palette.quiet))
        if step.step.warn:
            lines.append(Text(f" warning  {printable(step.step.warn)}", style=palette.strong))
    if stored is not None:
        lines.append(Text(f" came out {printable(outcome(stored))}", style=palette.strong))
    lines = lines[:DETAIL_LINES]
    return [cut(line, width) for line in [*lines, *[Text("")] * (DETAIL_LINES - len(lines))]]


def crumb_words(known: RunList, may_start: bool) -> str:
    """How many there are, what can be done with them from here, and whether their audit log is whole."""
    if known.moment_words:
        return f"{printable(known.moment_words)}; F goes back to what is; {printable(known.audit)}"
    runs = f"{counted(len(known.runbooks), 'runbook')}, {counted(len(known.runs) + known.more, 'run')}"
    can = "r starts, a answers, c goes on, x aborts" if may_start else "read only: --write lets them be run"
    return f"{printable(known.audit)}; {runs}" if known.broken else f"{runs}; {can}; {printable(known.audit)}"


def approvals(book: Runbook | None) -> str:
    """Who may start a runbook and who may approve its changes, as its text has it."""
    if book is None:
        return ""
    roles = book.head.roles
    return f"starts: {shorten(printable(roles.initiator), 20)}, approves: {shorten(printable(roles.approver), 20)}"
