"""What is asked of runbooks by forms of a page: start, answer, go on, abort; and what came of it.

Invariant: only a visitor that `write_check` let through asks, in whose name it is done; a start and a going on need the
name of what is started to be written once more. What is done is done by a process of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from console.core.run_list import RunList, library, run_list, runs_at
from console.core.run_start import Order, Orders, RunSetting, Start, StartRefused, start
from console.web.asked import Asked
from console.web.gate import Visitor
from runbooks.going_on import next_step

MOST_ENDED = 5
_PARAM = "param."
"""Begins the names of a form's parameters."""


class RunForms:
    """Runs in `setting`, against one ledger. Used from threads."""

    def __init__(self, setting: RunSetting, ledger: Path) -> None:
        self.setting, self._ledger = setting, ledger
        self._starts: list[Start] = []
        self._ended: deque[str] = deque(maxlen=MOST_ENDED)
        self._lock = Lock()

    def listed(self, now_us: int) -> RunList:
        """Runbooks and runs as they are now."""
        return run_list(self.setting.directory, library(datetime.fromtimestamp(now_us / 1e6, UTC).date()))

    def listed_in(self, asked: Asked) -> RunList:
        """The same as an address shows them: in a replay as far as they had come by its moment."""
        listed = self.listed(asked.clock_us)
        return listed if asked.view.replay is None else runs_at(listed, asked.moment_us)

    def ended(self) -> tuple[str, ...]:
        """What the processes that were started here have said last, the latest first."""
        with self._lock:
            for begun in list(self._starts):
                words = begun.ended()
                if words is not None:
                    self._starts.remove(begun)
                    self._ended.appendleft(f"{begun.subject}: {words}")
            return tuple(self._ended)

    def state(self) -> object:
        """Another value whenever there is news of a run."""
        seen: list[tuple[str, int, int]] = []
        for name in ("runs.sqlite", "runs.sqlite-wal", "audit.jsonl"):
            try:
                stat = (self.setting.directory / name).stat()
                seen.append((name, stat.st_size, stat.st_mtime_ns))
            except OSError:
                continue
        return (*seen, *self.ended())

    def act(self, visitor: Visitor, form: Mapping[str, str], now_us: int) -> str:
        """Do what a form asks; the id of the runbook or run that it is about. Raises StartRefused."""
        order = self._order(Orders(self.setting, self._ledger, visitor.who), self.listed(now_us), form)
        begun = start(order)
        with self._lock:
            self._starts.append(begun)
        return order.subject

    def _order(self, orders: Orders, listed: RunList, form: Mapping[str, str]) -> Order:
        act, subject = form.get("act", ""), form.get("subject", "")
        run = listed.run(subject)
        book = listed.runbook(run.runbook if run is not None else subject)
        if act == "run":
            given = {name.removeprefix(_PARAM): value for name, value in form.items() if name.startswith(_PARAM)}
            order = orders.run(book, subject, {name: value for name, value in given.items() if value})
            return _written(order, subject, form)
        if run is None:
            raise StartRefused(f"there is no run {subject or 'named'} here")
        if act == "answer":
            return orders.resume(run, book, form.get("words", ""))
        if act == "resume":
            at = next_step(run)
            return _written(orders.resume(run, book), at.step_id if at is not None else "end", form)
        if act == "abort":
            return orders.abort(run, form.get("words", ""))
        raise StartRefused(f"nothing is asked by {act!r}; it can be run, answer, resume, abort")


def _written(order: Order, name: str, form: Mapping[str, str]) -> Order:
    if form.get("typed", "").strip() != name:
        raise StartRefused(f"{name} was not written: nothing was started")
    return order
