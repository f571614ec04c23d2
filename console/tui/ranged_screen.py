"""Screens whose figures are counted of the view's range, in a thread.

Invariant: until a range is counted, what was counted last is drawn, or the whole record's, and the screen says which.
"""

from __future__ import annotations

from functools import partial

from console.core.merged import Record
from console.core.places import Place
from console.core.ranged import in_range, stretch
from console.core.rollup import Rollup
from console.core.time_range import Span
from console.core.times import clock
from console.tui.background import BackgroundScreen

_Key = tuple[Record, tuple[int, int, int], str]


class RangedScreen(BackgroundScreen):
    """A screen that counts a range when it has to draw one."""

    def __init__(self) -> None:
        super().__init__()
        self._counted: tuple[_Key, Rollup] | None = None

    def ranged(self) -> tuple[Rollup, str]:
        """What to draw, and of which stretch it is: nothing where that is the whole record."""
        app = self.console_app
        known, shown, at = app.known, app.desk.record, app.looking()
        if at.span == Span() and not (self.PLACE is Place.OVERVIEW and at.view.filter):
            self._counted = None
            return known, ""
        if shown is None:
            return known, "of the whole record, which is not read yet"
        times = stretch(known, at.span)
        key = (shown, times, at.view.filter)
        if self._counted is None or self._counted[0] != key:
            work = partial(in_range, self.PLACE, known, shown, at)
            self.compute("the range", work, partial(self._keep, key))
        if self._counted is None:
            return known, "of the whole record; the range is being counted"
        counted = self._counted[0][1]
        return self._counted[1], f"{clock(counted[0])}..{clock(counted[1])}"

    def _keep(self, key: _Key, counted: Rollup) -> None:
        self._counted = key, counted
        self.draw()
