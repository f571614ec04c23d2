"""A simulated fleet: the parts of every worker and of the gateway, made from a scenario.

Invariant: the roles, pools, checks and recorder are those of the live engine; clock, wire, transport, executor and
truth are those of virtual time, and nothing else differs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.block_pool import QUARANTINE, BlockPool
from engine.cached_prefix import CachedPrefix, Host
from engine.components import WHOLE, Components, Hooks, token_capacity
from engine.decode import DecodeEngine
from engine.defences import Checks, Defences, Limits
from engine.faults import Faults
from engine.ledger.recorder import Recorder
from engine.page_keys import IDENTITY_FIELDS, MEANING, KeyFields, Scope
from engine.prefill import PrefillEngine
from engine.ranks import RankedRecorder, RankedRows, Ranks, rank_name
from engine.role import Emit, HoldPolicy, Pace, Parts, Role
from engine.simulation.clock import VirtualClock
from engine.simulation.executor import SimExecutor
from engine.simulation.fault_plan import plan_faults
from engine.simulation.gateway import Door, SimGateway
from engine.simulation.lossy_recorder import LossyRecorder
from engine.simulation.people import People
from engine.simulation.planes import Planes
from engine.simulation.scenario import DEFAULT_DEFENCES, Group, Scenario
from engine.simulation.shards import HOST, KV, Shards, lanes, parts_of
from engine.simulation.transport import Lane, SimTransport
from engine.simulation.truth import RankTruths, SimTruth
from engine.simulation.wire import Post, SimWire
from engine.simulation.world import Task, World
from engine.tenants import Tenants
from engine.transport import WriteBatch
from engine.truth import Truth, stamp_of

SCOPES = {"global": Scope.SHARED, "organisation": Scope.ORGANISATION, "tenant": Scope.TENANT, "user": Scope.USER}
DRAIN_EVERY_ROWS = 1 << 15
KEY = b"simulation"
ENGINE = "kvwitness-simulate"
IDLE_BEATS = 10
"""An idle worker's heartbeats are so much rarer."""


@dataclass
class Worker:
    """One simulated worker."""

    name: str
    group: Group
    role: Role
    task: Task
    clock: VirtualClock
    recorder: Recorder
    shards: Shards
    planes: Planes
    transport: SimTransport | None
    executor: SimExecutor
    wire: SimWire


class Fleet:
    """Everything of one scenario, ready to run."""

    def __init__(self, scenario: Scenario, ledger: Path) -> None:
        self.scenario, self.ledger = scenario, ledger
        self.world = World(scenario.start)
        self.people = People()
        self.workers: dict[str, Worker] = {}
        self.ranks: dict[str, Ranks] = {}
        self._ranked = any(group.tp_size > 1 for group in scenario.fleet)
        self._truths: dict[str, SimTruth] = {}
        self._ordinal = 0
        self._tenants = Tenants({}, KEY.decode())
        self._pseudonyms: dict[str, str] = {}
        message, costs = self.random("message"), scenario.costs
        self.post = Post(self.world, lambda: costs.message_us(message))
        self._addresses = {
            f"sim://{name}": name for group in scenario.fleet if group.role == "prefill" for name in group.workers()
        }
        self.gateway = self._gateway(lambda: costs.message_us(message))
        for group in scenario.fleet:
            for name in group.workers():
                self._add(name, group)

    def pseudonym(self, tenant: str) -> str:
        """The name under which the ledger knows a tenant."""
        known = self._pseudonyms.get(tenant)
        if known is None:
            known = self._pseudonyms[tenant] = self._tenants.pseudonym(tenant)
        return known

    def close(self) -> None:
        """End every worker and seal the ledger."""
        for worker in self.workers.values():
            worker.role.close()
            if not worker.task.ended:
                worker.recorder.close()
        for truth in self._truths.values():
            truth.close()
        self._gateway_recorder.close()

    def kill(self, name: str) -> None:
        """A worker's process dies: it stops where it stands; what is on the wire still lands."""
        worker = self.workers[name]
        worker.task.kill()
        worker.wire.close()
        if worker.transport is not None:
            worker.transport.close()
        worker.recorder.abandon()
        self.gateway.lost(name)

    def restart(self, name: str) -> None:
        """A killed worker comes back as a new epoch, with empty memory, at the same address."""
        self._add(name, self.workers[name].group, self.workers[name].recorder.ordinal)

    def random(self, *names: str) -> random.Random:
        """A source of its own for each purpose, so that one more purpose changes no other."""
        return random.Random("/".join((str(self.scenario.seed), *names)))

    def _recorder(self, name: str, clock: VirtualClock, ordinal: int | None = None, leads: bool = False) -> Recorder:
        self._ordinal += ordinal is None
        return (_LeadingRecorder if leads else LossyRecorder)(
            self.ledger, name, ordinal=self._ordinal if ordinal is None else ordinal, now_us=clock.now_us, digest_key=KEY, threaded=False,
            ring_rows=8 * DRAIN_EVERY_ROWS, durable=False,
        )  # fmt: skip

    def _recorder_of(self, name: str, group: Group, clock: VirtualClock, ordinal: int | None) -> Recorder:
        """The recorder of a worker, or of the first of its ranks, which has the others with it."""
        if not self._ranked:
            recorder = self._recorder(name, clock, ordinal)
            self.ranks[name] = Ranks(name, 1, recorder.ordinal)
            return recorder
        ordinals = [ordinal + rank if ordinal is not None else None for rank in range(group.tp_size)]
        names = [rank_name(name, group.tp_size, rank) for rank in range(group.tp_size)]
        leader = self._recorder(names[0], clock, ordinals[0], leads=True)
        ranks = self.ranks[name] = Ranks(name, group.tp_size, leader.ordinal)
        others = [self._recorder(each, clock, one) for each, one in zip(names[1:], ordinals[1:], strict=True)]
        assert isinstance(leader, RankedRecorder)
        leader.lead(others, RankedRows(ranks, self.ranks.get))
        return leader

    def _gateway(self, message_us: Callable[[], int]) -> SimGateway:
        clock = VirtualClock(self.world)
        recorder = self._gateway_recorder = self._recorder("gateway", clock)
        recorder.record("workers", "start", role="gateway", ordinal=recorder.ordinal, engine=ENGINE)
        limits = [
            Limits(group.role, token_capacity(group.pages.present(), group.page_tokens), group.context_tokens)
            for group in self.scenario.fleet
        ]
        checks = Checks(Defences.parse(dict(self.scenario.defences.modes)), recorder)
        faults = Faults()
        plan_faults(
            self.world, self.scenario.faults, faults, frozenset({"gateway"}), self.random("faults", "gateway"),
            self.scenario.start,
        )  # fmt: skip
        return SimGateway(self.world, recorder, clock, checks, limits, faults, self.random("rooms"), message_us)

    def _add(self, name: str, group: Group, ordinal: int | None = None) -> None:
        """One worker. Its task begins when the world does, or now."""
        source, stated = self.random("clock", name), group.clock or self.scenario.clock
        clock = VirtualClock(self.world, source.randint(*stated.offset), round(source.uniform(*stated.drift_ppm)))
        recorder = self._recorder_of(name, group, clock, ordinal)
        shards = Shards(group, self.ranks[name], parts_of(group, self.scenario.fleet), self.scenario.recording.truth)
        truths = self._truths_of(name, clock)
        truth = truths[0] if len(truths) == 1 else RankTruths(truths)
        task = Task(self.world, name, lambda: self._turn(name))
        planes = Planes(task, self.people, shards.planes(truths))
        executor = SimExecutor(
            task, clock, shards.stores[KV, 0, 0], self.scenario.costs, self.people, truths[0], bytes_by_pool(group)[KV],
            shards.first(HOST), planes,
        )  # fmt: skip
        wire = SimWire(self.post, f"sim://{name}", clock.now_us, task.call)
        parts = self._parts(name, group, recorder, clock, executor, wire, truth, planes)
        transport = self._transport(name, group, shards, parts.memory, task) if group.role == "prefill" else None
        role = PrefillEngine(parts, transport) if transport is not None else DecodeEngine(parts)
        self.workers[name] = Worker(name, group, role, task, clock, recorder, shards, planes, transport, executor, wire)
        self.gateway.add(group.role, Door(name, wire.address, role, task, lambda rid: executor.passed(stamp_of(rid))))

    def _turn(self, name: str) -> None:
        """A worker's life: turn after turn, and naps in between."""
        worker = self.workers[name]
        while True:
            worker.task.heard()
            turn = worker.role.tick()
            if not turn.busy:
                worker.task.wait(worker.clock.true_us(turn.wake_us))

    def _truth_directory(self) -> Path | None:
        return self.ledger / "truth" if self.scenario.recording.truth else None

    def _parts(
        self, name: str, group: Group, recorder: Recorder, clock: VirtualClock, executor: SimExecutor, wire: SimWire,
        truth: Truth, planes: Planes,
    ) -> Parts:  # fmt: skip
        scenario = self.scenario
        defences = group.defences.over(scenario.defences).over(DEFAULT_DEFENCES)
        modes = Defences.parse(dict(defences.modes))
        pools = {
            name: BlockPool(name, pages + 1, group.page_tokens, recorder)
            for name, pages in group.pages.present().items()
        }
        pool, page_bytes = pools.pop(KV), bytes_by_pool(group)
        limits = Limits(group.role, token_capacity(group.pages.present(), group.page_tokens), group.context_tokens)
        recorder.record("workers", "start", role=group.role, ordinal=recorder.ordinal, engine=ENGINE)
        recorder.record(
            "workers", "config", pool=pool.name, pool_pages=pool.pages, page_tokens=group.page_tokens,
            page_bytes=page_bytes[KV], kv_format=group.kv_format, layers=group.layers, kv_heads=group.kv_heads,
            head_dim=group.head_dim, context_tokens=group.context_tokens,
            prompt_limit_tokens=limits.prompt_limit_tokens,
            defences=[f"{defence}={mode}" for defence, mode in modes.modes().items()],
        )  # fmt: skip
        for one in pools.values():
            columns = {} if one.name in WHOLE else {"page_tokens": group.page_tokens}
            recorder.record(
                "workers", "config", pool=one.name, pool_pages=one.pages, page_bytes=page_bytes[one.name],
                kv_format=group.kv_format, **columns,
            )  # fmt: skip
        faults = Faults()
        names = frozenset({name, group.group})
        plan_faults(self.world, scenario.faults, faults, names, self.random("faults", name), scenario.start)
        host = BlockPool("host", group.host_pages + 1, group.page_tokens, recorder) if group.host_pages else None
        if host is not None:
            recorder.record(
                "workers", "config", pool=host.name, pool_pages=host.pages, page_tokens=group.page_tokens,
                page_bytes=group.page_bytes, kv_format=group.kv_format,
            )  # fmt: skip
        recording, checks = scenario.recording, Checks(modes, recorder)
        prefix = None
        if (cache := group.prefix_cache).enabled:
            tier = Host(host, executor.copy) if host is not None and group.role == "prefill" else None
            fields = KeyFields(frozenset(IDENTITY_FIELDS) - set(MEANING) | set(cache.key_fields))
            prefix = CachedPrefix(pool, recorder, SCOPES[cache.scope], KEY, faults, checks, tier, fields)
        return Parts(
            worker=name, recorder=recorder, clock=clock, pool=pool, truth=truth, limits=limits, faults=faults,
            wire=wire, executor=executor, checks=checks, prefix=prefix, host=host, emit=self._emit(name), names=self._addresses,
            memory={
                "worker": name, "page_tokens": group.page_tokens, "pages": pool.pages,
                "page_bytes": page_bytes[KV] * group.tp_size,
                "beside": {one: page_bytes[one] * group.tp_size for one in pools},
            },
            others=Components(recorder, tuple(pools.values()), Hooks(planes.scrub, planes.accept)),
            holds=HoldPolicy(defences.hold_timeout or 0, defences.on_timeout or QUARANTINE, bool(defences.scrub)),
            pace=Pace(
                max_batch=group.max_batch, chunk_tokens=group.chunk_tokens, batch_tokens=group.batch_tokens,
                transfer_pages=group.transfer_pages, reserved_tokens=group.reserved_tokens,
                max_run_us=recording.step_run, gauge_us=recording.gauge,
                beat_busy_us=recording.heartbeat, beat_idle_us=IDLE_BEATS * recording.heartbeat,
            ),
        )  # fmt: skip

    def _transport(self, name: str, group: Group, shards: Shards, memory: dict[str, Any], task: Task) -> SimTransport:
        jitter, costs = self.random("transfer", name), self.scenario.costs

        def copied(batch: WriteBatch) -> list[Lane]:
            target = self.workers.get(batch.dst)
            return lanes(batch, shards, target.shards) if target is not None and not target.task.ended else []

        return SimTransport(
            self.world, memory, bytes_by_pool(group), copied, lambda size: costs.transfer_us(size, jitter), task.call
        )

    def _truths_of(self, name: str, clock: VirtualClock) -> list[SimTruth]:
        ranks, directory = self.ranks[name], self._truth_directory()
        names = [ranks.name(rank) for rank in range(ranks.size)]
        return [self._truths.setdefault(one, SimTruth(directory, one, self.people, clock)) for one in names]

    def _emit(self, name: str) -> Emit:
        return lambda rid, event: self.gateway.hear(name, rid, event)


class _LeadingRecorder(RankedRecorder, LossyRecorder):
    pass


def bytes_by_pool(group: Group) -> dict[str, int]:
    """Bytes of a page in each pool of a worker."""
    given = {str(pool): size for pool, size in group.component_bytes.items()}
    return {pool: given.get(pool, group.page_bytes) for pool in group.pages.present()}


def workers_of(fleet: Fleet, names: Sequence[str]) -> list[Worker]:
    """The workers that a scenario's names (of workers or groups) mean; all where there are none."""
    return [worker for worker in fleet.workers.values() if not names or {worker.name, worker.group.group} & set(names)]
