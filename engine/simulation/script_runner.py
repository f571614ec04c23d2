"""Plays a scenario's `script` and `losses`: exact moments, and what goes wrong with the record.

Invariant: every action happens at its time, in the order of the script; it uses what the engine's own parts offer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.block_pool import BlockPool
from engine.components import WHOLE
from engine.ranks import RankedRecorder
from engine.simulation.admission import admit
from engine.simulation.fleet import Fleet, Worker, workers_of
from engine.simulation.lossy_recorder import LossyRecorder
from engine.simulation.memory import Write
from engine.simulation.people import Person
from engine.simulation.prompts import SyntheticPrompt
from engine.simulation.scenario import ClockJump, KillLoss, RowLoss, Scenario
from engine.simulation.script import (
    AbortAction,
    Action,
    AuditAction,
    ContinueAction,
    FreeAction,
    GateAction,
    KillAction,
    LandAction,
    PauseAction,
    PostAction,
    RequestAction,
    ReserveAction,
    StepsAction,
)
from engine.simulation.traffic import Arrival
from engine.simulation.transport import SimTransport
from engine.truth import stamp_of

UNSYNCED_US = 200_000


class ScriptRunner:
    """Plans everything that a scenario scripts in its fleet's world."""

    def __init__(self, fleet: Fleet, scenario: Scenario) -> None:
        self._fleet, self._scenario, self._world = fleet, scenario, fleet.world
        self._outsiders: dict[
            tuple[str, str, str], tuple[int, int, np.ndarray]
        ] = {}  # (outsider, worker, pool) -> req, tag, pages

    def plan(self) -> None:
        """Put every action and loss into the queue."""
        start = self._scenario.start
        for action in self._scenario.script:
            if isinstance(action, KillAction):
                self._plan_kill(action.worker, start + action.at, UNSYNCED_US, action.restart_after)
            else:
                self._world.at(start + action.at, self._playing(action))
        for loss in self._scenario.losses:
            if isinstance(loss, KillLoss):
                self._plan_kill(loss.worker, start + loss.at, loss.unsynced, loss.restart_after)
            elif isinstance(loss, ClockJump):
                self._world.at(start + loss.at, self._jump(loss))
        self._lose_rows([loss for loss in self._scenario.losses if isinstance(loss, RowLoss)])

    def _playing(self, action: Action) -> Callable[[], None]:
        return lambda: self._play(action)

    def _jump(self, loss: ClockJump) -> Callable[[], None]:
        return lambda: self._fleet.workers[loss.worker].clock.jump(loss.by)

    def _play(self, action: Action) -> None:
        if isinstance(action, RequestAction):
            admit(self._fleet, self._arrival(action), action.prefill, action.decode)
        elif isinstance(action, AbortAction):
            self._fleet.gateway.hang_up(action.rid)
        elif isinstance(action, PauseAction | ContinueAction):
            self._pause(self._fleet.workers[action.worker], isinstance(action, PauseAction))
        elif isinstance(action, GateAction | PostAction | LandAction):
            self._write(action)
        elif isinstance(action, StepsAction):
            self._steps(action)
        elif isinstance(action, ReserveAction):
            self._reserve(action)
        elif isinstance(action, FreeAction):
            self._free(action)
        elif isinstance(action, AuditAction):
            role = self._fleet.workers[action.worker].role
            role.pool.audit({req: request.pages for req, request in role.requests.items()}, record=True)
            role.others.audit(role.requests)

    def _arrival(self, action: RequestAction) -> Arrival:
        return Arrival(
            self._world.now, action.rid, "script", action.tenant, action.organisation or action.tenant,
            action.user or action.tenant, action.synthetic(self._scenario.seed), action.max_tokens, action.purpose,
            action.adapter, action.media, None, None, 0, 0,
        )  # fmt: skip

    def _pause(self, worker: Worker, on: bool) -> None:
        worker.role.pause(on)
        worker.task.call()

    def _write(self, action: GateAction | PostAction | LandAction) -> None:
        """Gate, post or land pages of one handoff."""
        door = self._fleet.gateway.doors_of(action.rid)
        transport = self._fleet.workers[door.prefill].transport
        assert isinstance(transport, SimTransport)
        room = door.room
        if isinstance(action, GateAction):
            transport.script(room)
            return
        waiting = transport.waiting(room, action.component)
        last = (
            action.first + action.count if action.count is not None else (waiting[-1] + 1 if waiting else action.first)
        )
        pages = range(action.first, last)
        if isinstance(action, PostAction):
            transport.post(room, pages, action.component)
            return
        for i, page in enumerate(pages):
            self._world.at(self._world.now + i * action.every, self._landing(transport, room, page, action.component))

    @staticmethod
    def _landing(transport: SimTransport, room: int, page: int, pool: str) -> Callable[[], None]:
        return lambda: transport.land(room, page, pool)

    def _steps(self, action: StepsAction) -> None:
        """Let passes begin at given moments alone, until the last of them has ended."""
        worker = self._fleet.workers[action.worker]
        executor = worker.executor
        executor.began = lambda: worker.role.pause(True)
        worker.role.pause(True)
        worker.task.call()

        def begin() -> None:
            executor.lasts_us = action.lasts
            self._pause(worker, False)

        def end() -> None:
            executor.lasts_us = None
            self._pause(worker, False)

        for at in action.begins:
            self._world.at(self._world.now + at, begin)
        self._world.at(self._world.now + action.begins[-1] + action.lasts, end)

    def _reserve(self, action: ReserveAction) -> None:
        """Somebody who is no request of the traffic takes pages, and fills them."""
        worker, now = self._fleet.workers[action.worker], self._world.now
        role, stamp = worker.role, stamp_of(action.outsider)
        tenant = self._fleet.pseudonym(action.outsider)
        req = role.outsider(action.outsider, tenant)
        self._fleet.people.add(stamp, Person(action.outsider, tenant, (None,) * 4, SyntheticPrompt(())))
        pool = self._pool(worker, action.component)
        pages, tag = pool.reserve(req, action.pages)
        self._outsiders[action.outsider, action.worker, action.component] = req, tag, pages
        if action.write:
            tokens = len(pages) * pool.page_tokens
            tags = np.full(len(pages), tag, np.int64)
            write = Write(pages, 0, tokens, stamp, np.full(len(pages), stamp, np.int64), tags)
            if pool is role.pool:
                worker.shards.stores[pool.name, 0, 0].write(write, now)
            worker.planes.write(pool.name, write, now)
            columns = {} if action.component in WHOLE else {"tok_off": 0, "tokens": tokens}
            worker.recorder.pages("write", pool.name, req, tag, pages, pos=0, **columns)

    def _free(self, action: FreeAction) -> None:
        """An outsider frees its own pages, or somebody else's."""
        worker = self._fleet.workers[action.worker]
        role, pool = worker.role, self._pool(worker, action.component)
        if action.rid is None:
            req, tag, pages = self._outsiders.pop((action.outsider, action.worker, action.component))
            pool.free(req, tag, pages, "operator")
            return
        request = role.request_of(action.rid)
        table = request.others.get(pool.name, request) if request is not None else None
        if table is None or not len(table.pages):
            raise LookupError(f"script: {action.rid} has no pages on {action.worker} at {self._world.now}")
        stop = len(table.pages) if action.count is None else action.first + action.count
        req = role.outsider(action.outsider, self._fleet.pseudonym(action.outsider))
        role.runs.close()
        pool.free_unchecked(req, int(table.tags[action.first]), table.pages[action.first : stop], "error")

    @staticmethod
    def _pool(worker: Worker, component: str) -> BlockPool:
        role = worker.role
        return role.pool if component == role.pool.name else role.others.pools[component]

    def _plan_kill(self, name: str, at_us: int, unsynced_us: int, restart_after: int | None) -> None:
        def sync() -> None:
            self._fleet.workers[name].recorder.flush()

        self._world.at(at_us - unsynced_us, sync)
        self._world.at(at_us, lambda: self._fleet.kill(name))
        if restart_after is not None:
            self._world.at(at_us + restart_after, lambda: self._fleet.restart(name))

    def _lose_rows(self, losses: list[RowLoss]) -> None:
        for worker in self._fleet.workers.values():
            mine = [loss for loss in losses if worker in workers_of(self._fleet, loss.workers)]
            if not mine or not isinstance(worker.recorder, LossyRecorder):
                continue
            followers = worker.recorder.followers if isinstance(worker.recorder, RankedRecorder) else ()
            for recorder in (worker.recorder, *(one for one in followers if isinstance(one, LossyRecorder))):
                recorder.lose(self._chance(mine, self._fleet.random("losses", recorder.worker).random))

    def _chance(self, losses: list[RowLoss], draw: Callable[[], float]) -> Callable[[str], bool]:
        """Whether a row of a table is lost now."""
        return lambda table: any(
            (not loss.tables or table in loss.tables)
            and self._world.now - self._scenario.start in loss.window
            and draw() < loss.probability
            for loss in losses
        )
