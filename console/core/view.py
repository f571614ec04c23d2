"""What is being looked at: one immutable value, from which every screen draws.

Invariant: a view is changed only by making another one. The mode follows `TRANSITIONS` and nothing else; a view that is
live never has a range that stands still.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from console.core.places import Place
from console.core.time_range import ALL, Spans, TimeRange


class Mode(StrEnum):
    """How the view relates to a growing ledger."""

    LIVE = "live"
    PAUSED = "paused"
    HELD = "held"  # paused by opening something; leaving it resumes
    REPLAY = "replay"
    FINISHED = "finished"


class Cue(StrEnum):
    """What may change the mode."""

    TOGGLE = "toggle"
    OPEN = "open"
    LEAVE = "leave"
    FOLLOW = "follow"
    FIX = "fix"  # a range was chosen that stands still
    PLAY = "play"
    STOP = "stop"
    WRITERS_ENDED = "writers ended"
    WRITERS_CAME = "writers came"


TRANSITIONS: dict[tuple[Mode, Cue], Mode] = {
    (Mode.LIVE, Cue.TOGGLE): Mode.PAUSED,
    (Mode.LIVE, Cue.OPEN): Mode.HELD,
    (Mode.LIVE, Cue.FIX): Mode.PAUSED,
    (Mode.LIVE, Cue.PLAY): Mode.REPLAY,
    (Mode.LIVE, Cue.WRITERS_ENDED): Mode.FINISHED,
    (Mode.PAUSED, Cue.TOGGLE): Mode.LIVE,
    (Mode.PAUSED, Cue.FOLLOW): Mode.LIVE,
    (Mode.PAUSED, Cue.PLAY): Mode.REPLAY,
    (Mode.HELD, Cue.TOGGLE): Mode.LIVE,
    (Mode.HELD, Cue.FOLLOW): Mode.LIVE,
    (Mode.HELD, Cue.LEAVE): Mode.LIVE,
    (Mode.HELD, Cue.FIX): Mode.PAUSED,
    (Mode.HELD, Cue.PLAY): Mode.REPLAY,
    (Mode.REPLAY, Cue.STOP): Mode.PAUSED,
    (Mode.REPLAY, Cue.FOLLOW): Mode.LIVE,
    (Mode.FINISHED, Cue.PLAY): Mode.REPLAY,
    (Mode.FINISHED, Cue.WRITERS_CAME): Mode.LIVE,
}
"""A pair that is not listed leaves the mode as it is."""

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


@dataclass(frozen=True)
class Replay:
    """How fast the cursor moves over the record; it stands where `is_playing` is false."""

    speed: float = 1.0
    is_playing: bool = True

    def faster(self, by: int) -> Replay:
        """`by` steps of `SPEEDS` faster, or slower where it is negative."""
        at = min(max(SPEEDS.index(self.speed) + by, 0), len(SPEEDS) - 1)
        return replace(self, speed=SPEEDS[at])


@dataclass(frozen=True)
class Sort:
    """By which column the rows of the screen's table stand."""

    column: str
    descending: bool = False

    @property
    def text(self) -> str:
        """`severity`, or `-first`: the last first."""
        return f"-{self.column}" if self.descending else self.column

    @classmethod
    def parse(cls, text: str) -> Sort:
        """From its text."""
        return cls(text.removeprefix("-"), text.startswith("-"))


@dataclass(frozen=True)
class View:
    """Place, time, filter, sort, mode and selection.

    `incident`, `rid`, `page`, `pool` are keys, never places in a list: they survive a refresh. `cursor_us` is the moment
    that is pointed at, and the position of a replay; `mark_us` one that was marked, an end of a range to be.
    `as_of_us`: of a view that is paused, the moment after which nothing is shown; None = it pauses what it shows.
    `back`: the range from before an incident was opened at its own time, None where none was. `ledger`: its name, or
    `ledger_names.ALL_LEDGERS`; None = the console's one ledger, or the first. `options` are what one screen alone knows, as
    (name, value), sorted.
    """

    place: Place = Place.OVERVIEW
    range: TimeRange = ALL
    back: TimeRange | None = None
    cursor_us: int | None = None
    mark_us: int | None = None
    as_of_us: int | None = None
    filter: str = ""
    sort: Sort | None = None
    mode: Mode = Mode.LIVE
    replay: Replay | None = None
    incident: str | None = None
    rid: str | None = None
    page: int | None = None
    pool: str | None = None
    title: str = ""
    ledger: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    def on(self, cue: Cue) -> View:
        """The view after `cue`. What becomes live with a range that stands still sees what it followed before, else the whole
        record again.
        """
        mode = TRANSITIONS.get((self.mode, cue), self.mode)
        view = self
        if mode is Mode.LIVE and not self.range.follows:
            view = replace(self, range=self.back if self.back is not None and self.back.follows else ALL, back=None)
        as_of = self.as_of_us if mode is Mode.PAUSED else None
        if mode is not Mode.REPLAY:
            return replace(view, mode=mode, replay=None, as_of_us=as_of)
        return replace(self, mode=mode, replay=self.replay or Replay(), as_of_us=as_of)

    def with_range(self, wanted: TimeRange) -> View:
        """Another range; one that stands still ends following."""
        view = self if wanted.follows else self.on(Cue.FIX)
        return replace(view, range=wanted)

    def followed(self, now_us: int, spans: Spans) -> View:
        """Follow the record again, over as long a time as was looked at."""
        before = self.range if self.back is None else self.back
        return replace(self, range=before.following(now_us, spans), back=None).on(Cue.FOLLOW)

    def toggled(self) -> View:
        """Pause or go on: the view, or in a replay its playing."""
        if self.replay is not None:
            return replace(self, replay=replace(self.replay, is_playing=not self.replay.is_playing))
        return self.on(Cue.TOGGLE)

    def pause_replayed(self) -> View:
        """A pause of a moment as a replay that stands there, for whoever has not kept what was shown; else the same view."""
        if self.as_of_us is None:
            return self
        return replace(self.on(Cue.PLAY), cursor_us=self.as_of_us, replay=Replay(is_playing=False))

    def played(self, elapsed_us: int, first_us: int, last_us: int) -> View:
        """The replay after `elapsed_us` of real time, over a record of [first_us, last_us]; it stops at the end."""
        if self.replay is None or not self.replay.is_playing:
            return self
        start = first_us if self.cursor_us is None else self.cursor_us
        at = min(max(start + round(elapsed_us * self.replay.speed), first_us), last_us)
        return replace(self, cursor_us=at, replay=replace(self.replay, is_playing=at < last_us))

    def option(self, name: str) -> str | None:
        """What one screen's option is set to."""
        return dict(self.options).get(name)

    def with_option(self, name: str, value: str | None) -> View:
        """An option set, or taken away."""
        options = dict(self.options) | ({name: value} if value is not None else {})
        if value is None:
            options.pop(name, None)
        return replace(self, options=tuple(sorted(options.items())))

    def moment_us(self, clock_us: int) -> int:
        """The moment whose state is shown, us UTC: that of a replay, else the time of the wall."""
        return clock_us if self.replay is None or self.cursor_us is None else self.cursor_us

    @property
    def paused(self) -> bool:
        """Whether newer data are kept from view."""
        return self.mode in (Mode.PAUSED, Mode.HELD, Mode.REPLAY)
