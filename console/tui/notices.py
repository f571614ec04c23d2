"""What a screen says when it has nothing to show: loading, empty, failed, nothing found; why, and what to do."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from console.core.desk import Desk
from console.core.printable import counted, printable
from console.core.sheet import Shown
from console.core.snapshot import Snapshot
from console.tui.line_list import Line
from console.tui.palette import Palette


@dataclass(frozen=True)
class Notice:
    """A title, why, and what to do."""

    title: str
    cause: str
    step: str

    def text(self, palette: Palette) -> Text:
        """The notice as a block."""
        block = Text()
        block.append(f"{self.title}\n\n", style=palette.strong)
        block.append(f"{self.cause}\n\n")
        block.append(self.step, style=palette.quiet)
        return block


def absence(desk: Desk, ledger: Path) -> Notice | None:
    """Why there is nothing of this ledger to show yet; None where there is."""
    quoted = shlex.quote(str(ledger))
    if desk.rollup is not None and (desk.merged is not None or (desk.is_remembered and desk.failure is None)):
        return None
    if desk.merged is not None:
        return Notice(
            "Reading the ledgers …", "None of them has been read yet; the third line says how each stands.", "q quits."
        )
    if desk.shown is None and desk.failure is None:
        return Notice("Reading the ledger …", f"{quoted} is read and judged for the first time.", "q quits.")
    if desk.shown is None and desk.failure is not None:
        return Notice("The ledger could not be read", printable(desk.failure.what), f"Next: {desk.failure.remedy}.")
    if desk.shown is not None and desk.shown.empty:
        return _empty(desk.shown, quoted)
    return None


def reading_notice(desk: Desk, ledger: Path) -> Notice | None:
    """Why a screen that draws the record itself has nothing to draw; what is remembered holds no record."""
    told = absence(desk, ledger)
    if told is None and desk.record is None:
        quoted = shlex.quote(str(ledger))
        return Notice(
            "Reading the ledger …",
            f"{quoted} is read and judged; what is remembered of it stands on 1 and 2.",
            "q quits.",
        )
    return told


def notice(desk: Desk, ledger: Path) -> Notice | None:
    """Why there is no incident to show; None where there is one."""
    told, quoted = absence(desk, ledger), shlex.quote(str(ledger))
    if told is not None or desk.shown is None:
        return told
    if not desk.shown.incidents:
        judged = counted(desk.shown.reads.responses.num_rows - desk.shown.judging, "response")
        return Notice(
            "No incident",
            f"Judged so far: {judged}. None of them read pages that were not its own.",
            f"Next: forensics gaps --ledger {quoted} says what the record does not show.",
        )
    return None


def nothing_left(left: Shown, palette: Palette, near: str = "") -> list[Line]:
    """Why a table has no rows, and what brings them back. `near`: what lies nearest to the range."""
    if left.hidden:
        words = f"the filter hides all {left.hidden:,}: / changes it"
    elif left.outside:
        words = f"all {left.outside:,} are outside the range: z shows the whole record"
    else:
        words = "none in this range" if near else "none in this record"
    if near:
        return [Line(None, Text(each, end="", style=palette.quiet)) for each in (words, near)]
    return [Line(None, Text(words, end="", style=palette.quiet))]


def _empty(shown: Snapshot, quoted: str) -> Notice:
    problem = shown.first_problem
    if problem is not None:
        more = len(shown.ledger.problems) - 1
        cause = f"{printable(problem.where)}: {printable(problem.what)}" + (f" (and {more} more)" if more else "")
        return Notice("No request can be read", cause, f"Next: {problem.remedy}; forensics gaps --ledger {quoted}")
    cause = f"{quoted} is a ledger, but no request has been recorded in it."
    if not shown.writing:
        return Notice("No request", f"{cause} Its writers have ended.", "Next: is it the ledger that you mean?")
    return Notice(
        "No request yet", cause, "Next: send requests to the engine that writes it; this view follows by itself."
    )
