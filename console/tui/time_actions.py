"""Actions on time: range, point, zoom, pause, replay."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

from textual.worker import Worker, WorkerState

from console.core.as_it_was import snapshot_at
from console.core.nearest import shifted
from console.core.own_time import swapped
from console.core.snapshot import Snapshot
from console.core.time_moves import marked, moment_in, pointed, stepped, zoomed
from console.core.time_range import ALL, parse_range
from console.core.view import SPEEDS, Cue, Mode
from console.tui.app_base import DeskApp, Refused

REPLAY_SECONDS = 0.25
"""How often a replay that plays moves on."""
PAST = "past"
"""The group of the worker that judges the record as it was."""


class TimeActions(DeskApp):
    """One time for all screens."""

    _ticked_at = 0.0
    _past_rest_until = 0.0

    def do_pause(self, _: str = "") -> None:
        """Pause the view or follow again; in a replay, play or stand."""
        if self.desk.mode is Mode.FINISHED:
            self.say("this ledger is finished: nothing will come in")
        self.change(self.desk.view.toggled())

    def do_follow(self, _: str = "") -> None:
        """Follow the ledger again."""
        self.change(self.desk.view.followed(self.range_now(), self.known.span))

    def do_range(self, text: str) -> None:
        """Look at another time."""
        wanted = parse_range(text)
        wanted.resolve(self.range_now(), self.known.span)
        self.change(replace(self.desk.view, back=None).with_range(wanted))

    def do_at(self, text: str) -> None:
        """Point at a moment."""
        looked = self.looked()
        self.change(pointed(self.desk.view, looked, moment_in(text, looked)))

    def do_earlier(self, _: str = "") -> None:
        """Point one stretch earlier."""
        self._step(-1)

    def do_later(self, _: str = "") -> None:
        """Point one stretch later."""
        self._step(1)

    def _step(self, by: int) -> None:
        """A stretch on; from a range with nothing in it to what is nearest."""
        near = self.nearest()
        view = None if near is None else shifted(self.desk.view, near, by)
        self.change(stepped(self.desk.view, self.looked(), by) if view is None else view)

    def do_left(self, _: str = "") -> None:
        """Where there is no map to move on: earlier."""
        self.do_earlier()

    def do_right(self, _: str = "") -> None:
        """Where there is no map to move on: later."""
        self.do_later()

    def do_zoom_in(self, _: str = "") -> None:
        """Half as much time."""
        self.change(zoomed(self.desk.view, self.whole, self.looked(), 0.5))

    def do_zoom_out(self, _: str = "") -> None:
        """Twice as much time."""
        self.change(zoomed(self.desk.view, self.whole, self.looked(), 2.0))

    def do_range_back(self, _: str = "") -> None:
        """The range from before an incident was opened, or on it its own time again."""
        self.change(swapped(self.desk.view, self.known.span))

    def do_zoom_fit(self, _: str = "") -> None:
        """The whole record."""
        self.change(self.desk.view.with_range(ALL))

    def do_mark(self, _: str = "") -> None:
        """Mark the moment under the cursor, or look at what lies between the mark and it."""
        at = self.pointed_us()
        if at is None:
            raise Refused("nothing is pointed at; [ and ] point, and so does a cursor on Events or Pages")
        self.change(marked(self.desk.view, at))

    def do_next_incident(self, _: str = "") -> None:
        """Point at the next incident."""
        self._point_at_incident(1)

    def do_previous_incident(self, _: str = "") -> None:
        """Point at the previous one."""
        self._point_at_incident(-1)

    def _point_at_incident(self, by: int) -> None:
        timed = sorted(
            (i for i in self.whole.incidents if i.first_seen_us is not None), key=lambda i: i.first_seen_us or 0
        )
        if not timed:
            raise Refused("no incident of this ledger has a time")
        at = next((n for n, i in enumerate(timed) if i.key == self.desk.view.incident), None)
        chosen = timed[(at + by) % len(timed)] if at is not None else timed[0 if by > 0 else -1]
        self.change(replace(self.desk.view, incident=chosen.key, cursor_us=chosen.first_seen_us))

    def do_replay(self, text: str = "") -> None:
        """Play the record from what is pointed at, from its beginning where that is nothing or its end."""
        if self.desk.merged is not None:
            raise Refused("a replay is of one ledger; L chooses it")
        speeds = {f"{speed:g}": speed for speed in SPEEDS}
        if text and text.removeprefix("×") not in speeds:
            raise Refused(f"{text!r} is no speed; there are: {', '.join(speeds)}")
        first, last = self.looked()
        view = self.desk.view.on(Cue.PLAY)
        if view.replay is None:
            raise Refused("this view cannot be replayed")
        speed = speeds[text.removeprefix("×")] if text else view.replay.speed
        at = view.cursor_us if view.cursor_us is not None and first <= view.cursor_us < last else first
        self._ticked_at = time.monotonic()
        self.change(replace(view, cursor_us=at, replay=replace(view.replay, speed=speed, is_playing=True)))

    def do_faster(self, _: str = "") -> None:
        """Play faster."""
        self._pace(1)

    def do_slower(self, _: str = "") -> None:
        """Play slower."""
        self._pace(-1)

    def _pace(self, by: int) -> None:
        if self.desk.view.replay is None:
            raise Refused("nothing is played; R plays the record")
        self.change(replace(self.desk.view, replay=self.desk.view.replay.faster(by)))

    def tick(self) -> None:
        """Move a replay that plays by the time that has passed since the last tick, and show the record as it was there."""
        now, before = time.monotonic(), self._ticked_at
        self._ticked_at = now
        replay = self.desk.view.replay
        if replay is None or self.desk.rollup is None:
            return
        if replay.is_playing:
            first, last = self.looked()
            self.change(self.desk.view.played(round((now - before) * 1e6), first, last))
        self._look_back()

    def _look_back(self) -> None:
        """Judge the record as it was at the cursor, unless that is shown, or being done; another moment waits its turn."""
        full, at = self.desk.full, self.desk.view.cursor_us
        if full is None or at is None:
            return
        if at >= (full.data_us or 0):
            if self.desk.whole is not None:
                self.desk = self.desk.at(None)
                self.redraw()
            return
        is_there = self.desk.whole is not None and self.desk.shown is not None and self.desk.shown.taken_us == at
        busy = any(worker.group == PAST and not worker.is_finished for worker in self.workers)
        if not is_there and not busy and time.monotonic() >= self._past_rest_until:
            self.run_worker(
                partial(self._judge_past, full, at), thread=True, group=PAST, name=full.fingerprint, exit_on_error=False
            )

    def _judge_past(self, full: Snapshot, at_us: int) -> Snapshot:
        started = time.thread_time()
        past = snapshot_at(full, at_us)
        _ = (past.rollup.incidents, past.rollup.held, past.order)  # computed here rather than while drawing
        # Half of a core at most, however long the record is.
        self._past_rest_until = time.monotonic() + time.thread_time() - started
        return past

    def take_past(self, worker: Worker[Any]) -> None:
        """Show the record as it was, if that is still what is looked at."""
        full = self.desk.full
        if worker.state is WorkerState.ERROR:
            self.say_once(f"the record as it was could not be judged: {worker.error}")
        elif worker.state is WorkerState.SUCCESS and full is not None and worker.name == full.fingerprint:
            self.desk = self.desk.at(worker.result)
            self.redraw()
