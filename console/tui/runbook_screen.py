"""The Runs screen: runbooks, the runs made of them, their steps and what came out.

Invariant: it reads what runs have stored, once a second while it is seen; what is asked of one is left to a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from console.core.places import Place
from console.core.printable import printable
from console.core.run_list import RunList, library, next_words, run_list, runs_at
from console.core.run_start import Order, Orders, Start, StartRefused, split_asked, start
from console.core.run_tables import runs_in_order, runs_sheet
from console.core.sheet import Sheet, Shown
from console.tui.app_base import Refused
from console.tui.background import BackgroundScreen
from console.tui.canvas import Canvas
from console.tui.line_list import Line, LineList
from console.tui.lines import cut, rule
from console.tui.notices import Notice
from console.tui.own_tables import OwnTables, unfiltered
from console.tui.prompt_screen import Ask, PromptScreen
from console.tui.runbook_lines import (
    BOOK,
    RUN,
    approvals,
    crumb_words,
    first_list,
    step_detail,
    steps_of_book,
    steps_of_run,
)
from console.tui.screen_base import bindings_of
from runbooks.going_on import STANDING, next_step
from runbooks.model import Runbook
from runbooks.store import StoredRun

POLL_SECONDS = 1.0


class RunbookScreen(OwnTables, BackgroundScreen):
    """Runbooks and runs."""

    PLACE: ClassVar[Place] = Place.RUNS
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(Place.RUNS)
    PANES: ClassVar[Mapping[str, tuple[str, ...]]] = {"run-list": (), "step-list": ("step-titles",), "step-detail": ()}

    def __init__(self) -> None:
        super().__init__()
        self._known: RunList | None = None
        self._starts: list[Start] = []
        self._steps_of = ""

    def compose_body(self) -> ComposeResult:
        """Runbooks and runs, steps, the step under the cursor."""
        yield LineList(id="run-list")
        yield Canvas(id="step-titles")
        yield LineList(id="step-list")
        yield Canvas(id="step-detail", pane=True)

    def on_mount(self) -> None:
        """Look once a second."""
        super().on_mount()
        self.set_interval(POLL_SECONDS, self._look)
        self._look()

    def crumbs(self) -> Text:
        """How many there are, and whether any can be started."""
        width = self.app.size.width
        known = self._seen
        if known is None:
            return cut(Text(" Runs", end="", style=self.palette.strong), width)
        words = crumb_words(known, self.console_app.around.runs.may_start)
        return cut(Text(f" {words}", end="", style=self.palette.quiet), width)

    @property
    def _seen(self) -> RunList | None:
        """What there is in the view's order, in a replay as far as it had come at its moment."""
        app, known = self.console_app, self._known
        if known is None:
            return None
        then = known if app.desk.view.replay is None else runs_at(known, app.moment_us())
        return runs_in_order(then, app.desk.view.sort)

    def tables(self) -> tuple[tuple[Sheet, Shown], ...]:
        """The runs."""
        known = self._seen
        if known is None:
            raise Refused("the runs have not been read yet")
        return (unfiltered(runs_sheet(known), self.console_app.desk.view, self.console_app.now_us()),)

    def _look(self) -> None:
        """Read what is stored, and say what started runs have come to."""
        for begun in list(self._starts):
            words = begun.ended()
            if words is not None:
                self._starts.remove(begun)
                self.console_app.say(printable(words), title=f"{begun.subject} has ended")
        if self.is_current and not self.is_computing:
            books = self._known.runbooks if self._known is not None else None
            now = datetime.fromtimestamp(self.console_app.now_us() / 1e6, UTC).date()

            def read() -> RunList:
                return run_list(self.console_app.around.runs.directory, library(now) if books is None else books)

            self.compute("runs", read, self._take)

    def _take(self, known: RunList) -> None:
        if known != self._known:
            self._known = known
            self.draw()

    def draw_body(self, width: int) -> None:
        """Runbooks and runs; steps of the one under the cursor."""
        known = self._seen
        told = None
        if known is None:
            told = Notice("Reading the runbooks …", "The library, and what runs have stored.", "q quits.")
        elif known.problem:
            told = Notice("The runs cannot be read", printable(known.problem), "Next: runbook verify-audit says more.")
        self.tell(told)
        if known is None or told is not None:
            return
        self.query_one("#run-list", LineList).show(first_list(known, width, self.palette))
        self._draw_steps()

    @property
    def _selected(self) -> tuple[Runbook | None, StoredRun | None]:
        """The runbook under the cursor, or the run with the runbook it was made of."""
        key, known = self.query_one("#run-list", LineList).cursor_key, self._seen
        if known is None or key is None:
            return None, None
        if key.startswith(BOOK):
            return known.runbook(key.removeprefix(BOOK)), None
        run = known.run(key.removeprefix(RUN))
        return (known.runbook(run.runbook) if run is not None else None), run

    def _draw_steps(self) -> None:
        width, palette = self.app.size.width, self.palette
        book, run = self._selected
        titles: Text = Text("", end="")
        lines: list[Line] = []
        if run is not None:
            titles, lines = steps_of_run(run, width, palette)
        elif book is not None:
            titles, lines = steps_of_book(book, width, palette)
        name = run.run_id if run is not None else book.head.id if book is not None else "nothing"
        head = rule(f"STEPS of {printable(name)}", width, palette, approvals(book))
        self.query_one("#step-titles", Canvas).show([head, titles])
        at = next_step(run) if run is not None and run.state in STANDING and name != self._steps_of else None
        self._steps_of = name
        self.query_one("#step-list", LineList).show(lines, at.step_id if at is not None else None)
        self._draw_detail()

    def _draw_detail(self) -> None:
        book, run = self._selected
        step = self.query_one("#step-list", LineList).cursor_key
        lines = [] if step is None else step_detail(book, run, step, self.app.size.width, self.palette)
        self.query_one("#step-detail", Canvas).show(lines)

    @on(LineList.Moved, "#run-list")
    def _select(self) -> None:
        self._draw_steps()

    @on(LineList.Moved, "#step-list")
    def _select_step(self) -> None:
        self._draw_detail()

    @on(LineList.Opened, "#run-list")
    def _to_steps(self) -> None:
        if self.alone is not None:
            self.zoom("step-list")
            self.draw()
        self.query_one("#step-list", LineList).focus()

    @property
    def _orders(self) -> Orders:
        around = self.console_app.around
        return Orders(around.runs, self.console_app.source.path, around.who)

    def do_run(self, text: str = "") -> None:
        """Start a runbook, after its name was written once more."""
        try:
            asked, given = split_asked(text)
            book = self._selected[0]
            if asked and self._known is not None:
                book = self._known.runbook(asked)
            order = self._orders.run(book, asked, given)
        except StartRefused as refused:
            self._refuse(refused)
            return
        assert book is not None  # else it was refused
        warnings = [printable(s.step.warn) for s in book.steps if s.step.warn]
        words = f"write {book.head.id} to start it; " + ("; ".join(warnings) or "it sends no request of its own")
        self._ask("start ", words, partial(self._confirmed, order, book.head.id))

    def do_answer(self, text: str = "") -> None:
        """Answer the question that the selected run waits with."""
        book, run = self._selected
        if text:
            self._order(lambda: self._orders.resume(run, book, text))
            return
        try:
            self._orders.resume(run, book, "TEXT")
        except StartRefused as refused:
            self._refuse(refused)
            return
        assert run is not None  # else it was refused
        words = f"{printable(run.run_id)} asks: {printable(next_words(run, book))}"
        self._ask("answer ", words, partial(self._written, self.do_answer))

    def do_resume(self) -> None:
        """Go on with the selected run, after the step at which it goes on was written."""
        book, run = self._selected
        try:
            order = self._orders.resume(run, book)
        except StartRefused as refused:
            self._refuse(refused)
            return
        assert run is not None  # else it was refused
        at = next_step(run)
        name = at.step_id if at is not None else "end"
        words = f"write {name} to go on; {printable(next_words(run, book))}"
        self._ask("go on at ", words, partial(self._confirmed, order, name))

    def do_abort(self, why: str = "") -> None:
        """Abort the selected run, with the reason."""
        run = self._selected[1]
        if why:
            self._order(lambda: self._orders.abort(run, why))
            return
        try:
            self._orders.abort(run, "TEXT")
        except StartRefused as refused:
            self._refuse(refused)
            return
        assert run is not None  # else it was refused
        words = f"say why {printable(run.run_id)} is aborted: what is left of it is never run"
        self._ask("because ", words, partial(self._written, self.do_abort))

    def _ask(self, sigil: str, words: str, done: Callable[[str | None], None]) -> None:
        self.app.push_screen(PromptScreen(Ask(sigil, "", fault=words)), done)

    def _written(self, act: Callable[[str], None], text: str | None) -> None:
        if text is not None:
            act(text or " ")

    def _confirmed(self, order: Order, name: str, text: str | None) -> None:
        if text is None or text.strip() != name:
            self.console_app.say(f"{name} was not written: nothing was started", title="Not started")
            return
        self._order(lambda: order)

    def _order(self, make: Callable[[], Order]) -> None:
        """Start what is asked for, or say why not."""
        if self.console_app.desk.view.replay is not None:
            self._refuse(
                StartRefused("this is a replay of what was: F goes back to what is, and there runbooks are run")
            )
            return
        try:
            order = make()
            self._starts.append(start(order))
        except StartRefused as refused:
            self._refuse(refused)
            return
        self.console_app.say(f"{order.subject} runs; its steps show here", title="Started")

    def _refuse(self, refused: StartRefused) -> None:
        self.console_app.say(str(refused), title="Not started")
