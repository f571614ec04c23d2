"""Screens whose tables are made by themselves rather than kept in a rollup: what they export is what they show."""

from __future__ import annotations

from abc import abstractmethod

from console.core.export import FORMATS, Exported, export
from console.core.redaction import Redaction
from console.core.sheet import Sheet, Shown, shown
from console.core.time_range import Span
from console.core.view import View
from console.tui.screen_base import DeskScreen


def unfiltered(sheet: Sheet, view: View, now_us: int) -> tuple[Sheet, Shown]:
    """A table that the screen shows whole, in the view's order."""
    return sheet, shown(sheet, View(sort=view.sort), Span(), now_us)


class OwnTables(DeskScreen):
    """A screen over the desk with tables of its own."""

    @abstractmethod
    def tables(self) -> tuple[tuple[Sheet, Shown], ...]:
        """The tables that are shown, as the view leaves them. Raises Refused where nothing is shown yet."""

    def exported(self, fmt: str) -> tuple[tuple[Exported, str], ...]:
        """The files of what is shown, and of each in words how much it holds."""
        app = self.console_app
        view = self.addressed(app.desk.view)
        return tuple(
            (export(app.known, sheet, left, view, fmt, Redaction()), left.words) for sheet, left in self.tables()
        )

    def do_export(self, text: str) -> None:
        """Write what is shown into files that were not there before; what is no table, the app exports."""
        app, fmt = self.console_app, text.strip()
        if fmt not in FORMATS:
            app.do_export(fmt)
            return
        kept = [f"{app.keep(made)}: {words}" for made, words in self.exported(fmt)]
        app.say("\n".join(kept), title="Exported")
