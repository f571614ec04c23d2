"""What vLLM's scheduler says, as ledger rows: requests, block tables, passes, cache hits, handoffs and ends.

Invariant: every block that a pass was handed is recorded before the pass. What this recorder does not follow (several
cache groups, drafted tokens, block copies, loads by other connectors) leaves a missing row, so that nobody is cleared by it.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from multiprocessing.util import Finalize
from typing import Any

from engine.adapters.block_tables import POOL, BlockTables, Life
from engine.adapters.hooks import Hook
from engine.adapters.keyed import Keyed
from engine.adapters.ledger_rows import LedgerRows
from engine.adapters.meter import Meter
from engine.adapters.nixl_handoffs import NixlHandoffs
from engine.adapters.notes import Notes
from engine.adapters.observed import Observed
from engine.adapters.vllm_names import api_id
from engine.adapters.vllm_passes import Passes
from engine.adapters.vllm_settings import VllmSettings
from engine.adapters.vllm_start import described
from engine.ledger.recorder import Recorder

log = logging.getLogger("kv_witness")
TOLD_EVERY_US = 10_000_000
"""How often the recorder tells that it lives and what it costs."""

MOST_UNDER_WAY = 64
"""Bound on passes that are handed over and have not come back."""


def now_us() -> int:
    """The clock of this host, microseconds UTC."""
    return time.time_ns() // 1000


class VllmRecorder:
    """Handlers of HOOKS for the process that schedules. Inert until `begin`: every process of vLLM loads the plugin."""

    def __init__(self, settings: VllmSettings, clock: Callable[[], int] = now_us, meter: Meter | None = None) -> None:
        self.meter = meter or Meter()
        self.failures = 0
        self.recorder: Recorder | None = None
        self._settings, self._clock = settings, clock
        self._keyed = Keyed(settings.place.key) if settings.place.key else None
        self._missing: Mapping[Hook, str] = {}
        self._lives: dict[str, Life] = {}
        self._rows: LedgerRows
        self._tables: BlockTables
        self._handoffs: NixlHandoffs
        self._passes: Passes
        self._filing: list[tuple[Life, list[int], list[int], int]] = []
        self._begun: deque[tuple[int, int]] = deque(
            maxlen=MOST_UNDER_WAY
        )  # last seq and time when a pass was handed over
        self._counts: Mapping[str, int] = {}
        self._told_us = 0
        self._ranks = 1
        self._is_followed = True

    @property
    def steps(self) -> int:
        """Passes recorded so far."""
        return self._passes.steps if self.recorder is not None else 0

    def attached(self, missing: Mapping[Hook, str]) -> None:
        """Told which hooks could not be attached, before `begin`."""
        self._missing = missing

    def begin(self, owner: Any, result: Any = None) -> None:
        """A scheduler stands: this process records from here on."""
        if self.recorder is not None:
            return
        place, found = self._settings.place, described(owner, self._settings.role)
        name = place.name or found.engine_id or found.role
        recorder = Recorder(place.ledger, name, ordinal=place.first_ordinal, now_us=self._clock, digest_key=place.key)
        self._rows = LedgerRows(recorder, Notes(), found.page_tokens)
        self._tables = BlockTables(recorder, found.blocks, found.page_tokens)
        self._handoffs = NixlHandoffs(recorder, self._tables, self._settings.one_rid, self._name)
        self._passes = Passes(recorder, self._tables)
        self._ranks = found.start["tp_size"] * found.start["pp_size"]
        recorder.record("workers", "start", ordinal=place.first_ordinal, **found.start)
        recorder.record("workers", "config", pool=POOL, **found.config)
        for hook, why in self._missing.items():
            recorder.record("checks", "skipped", detector=f"hook {hook.path}", pool=POOL, n=1, action=why)
        if found.unfollowed:
            self._is_followed = False
            recorder.record("checks", "skipped", detector="block tables", pool=POOL, n=1, action=found.unfollowed)
        self.recorder = recorder
        self._lose_unwatched()
        # A child of multiprocessing runs these at its end, and no atexit handler.
        Finalize(None, self.close, exitpriority=10)

    def received(self, owner: Any, request: Any, result: Any) -> None:
        """A request stands in the queue; more input of one that is there already is no new one."""
        if self.recorder is None or request.request_id in self._lives:
            return
        self._passes.close_run()
        rid, who = self._name(request.request_id), self._identity(request)
        columns = {"prompt_tokens": request.num_prompt_tokens, "tenant": who["tenant"], "adapter": who["adapter"]}
        self._rows.write(Observed(None, "requests", "receive", columns, rid))
        req = self._rows.request(rid)
        if req is not None:
            self._lives[request.request_id] = Life(req, rid, who)

    def asked(self, owner: Any, request: Any, blocks: Any, num_external_tokens: int, result: Any) -> None:
        """Blocks were allocated for a request that may be read from prefill."""
        params, life = request.kv_transfer_params, self._lives.get(request.request_id)
        if self.recorder is None or life is None or not params or not params.get("do_remote_prefill"):
            return
        if not params.get("remote_block_ids"):
            return
        self._passes.close_run()
        self._admitted(life)
        if not num_external_tokens:
            self._handoffs.found_all(life, params)
            return
        table = [block.block_id for block in blocks.blocks[0]]
        targets = blocks.get_unhashed_block_ids_all_groups()[0]
        self._flush_filing()
        self._tables.share(life, table[: len(table) - len(targets)])
        self._tables.extend(life, table[len(table) - len(targets) :])
        life.cached = life.hits * self._tables.page_tokens
        covered = life.cached + num_external_tokens
        self._handoffs.ask(request.request_id, life, params, targets, covered)

    def scheduled(self, owner: Any, result: Any) -> None:
        """A pass is handed to the workers, with the blocks that it uses beyond those they know."""
        recorder = self.recorder
        if recorder is None:
            return
        admitted = []
        for new in result.scheduled_new_reqs:
            admitted.append((new.req_id, new.block_ids, new.num_computed_tokens))
        cached = result.scheduled_cached_reqs
        for i, blocks in enumerate(cached.new_block_ids):
            if blocks is None:
                continue
            request_id = cached.req_ids[i]
            if request_id in cached.resumed_req_ids:
                admitted.append((request_id, blocks, cached.num_computed_tokens[i]))
            elif (life := self._lives.get(request_id)) is not None and blocks[0]:
                self._passes.close_run()
                self._tables.extend(life, blocks[0], "append" if life.decoding else "reserve")
        if admitted or self._filing:
            self._passes.close_run()
            self._admit(owner, admitted)
        if not self._is_followed or getattr(result, "kv_cache_block_copies", None):
            recorder.miss("pages", POOL)
        self._begun.append((recorder.seq, self._clock()))

    def passed(self, owner: Any, scheduler_output: Any, model_runner_output: Any, result: Any) -> None:
        """A pass has run: what it wrote and read, and whose tokens it gave."""
        recorder = self.recorder
        if recorder is None:
            return
        since, start = self._begun.popleft() if self._begun else (recorder.seq, self._clock())
        now, counts = self._clock(), scheduler_output.num_scheduled_tokens
        drafted = scheduler_output.scheduled_spec_decode_tokens
        if drafted:
            recorder.miss("pages", POOL)
        if counts and (drafted or counts != self._counts or not self._passes.repeat(start, now)):
            self._counts = counts
            self._note(counts, model_runner_output, since, start, now)
        if now - self._told_us >= TOLD_EVERY_US:
            self._tell(owner, now)

    def _note(self, counts: Mapping[str, int], output: Any, since: int, start: int, now: int) -> None:
        sampled, places = output.sampled_token_ids, output.req_id_to_index
        decoding, others = [], []
        for request_id, count in counts.items():
            life = self._lives.get(request_id)
            if life is None or life.ended or not life.pages:
                continue
            if life.decoding:
                decoding.append(life)
            if not (life.decoding and life.has_token):
                others.append((life, count, bool(sampled and sampled[places[request_id]])))
        self._passes.note(decoding, others, since, start, now)

    def moved(self, owner: Any, kv_connector_output: Any, result: Any) -> None:
        """Workers tell which reads are over, on either side."""
        output = kv_connector_output
        told = getattr(output.kv_connector_stats, "data", None) or {}
        expired, late = (len(told.get(f"num_{name}", ())) for name in ("kv_expired_reqs", "notifications_after_expiry"))
        failed, invalid = (getattr(output, name, None) or () for name in ("failed_recving", "invalid_block_ids"))
        if self.recorder is None or not (
            output.finished_recving or output.finished_sending or failed or invalid or expired or late
        ):
            return
        self._passes.close_run()
        if expired and self._ranks > 1:
            self._handoffs.doubt()
        for request_id in failed:  # they stand among those that are over, too
            self._handoffs.failed(request_id)
        for request_id in output.finished_recving or ():
            if (life := self._lives.get(request_id)) is not None:
                self._handoffs.read(request_id, life)
        if invalid:
            self.recorder.miss("transfers")
        for request_id in output.finished_sending or ():
            if (life := self._lives.get(request_id)) is not None:
                self._handoffs.let_go(request_id, life, not expired)
        if late:
            self.recorder.record("checks", "mismatch", detector="nixl notification after expiry", pool=POOL, n=late)

    def ended(self, owner: Any, request: Any, result: Any) -> None:
        """A request is over. Its blocks are free by now, unless they are to be read or still written."""
        life = self._lives.get(request.request_id)
        if self.recorder is None or life is None:
            return
        self._passes.close_run()
        status = request.status.name
        params = result[0] if result else None
        if request.request_id in owner.requests:
            if not params or not self._handoffs.lease(request.request_id, life, params):
                self._tables.hold(life, "abort" if status == "FINISHED_ABORTED" else "finish")
        else:
            self._lives.pop(request.request_id)
        is_finished = status in ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED", "FINISHED_REPETITION")
        # Its blocks are freed before this: what stands of a request that ended is its lease.
        life.ended = True
        self.recorder.record(
            "requests", "finish" if is_finished else "abort", req=life.req, prompt_tokens=request.num_prompt_tokens,
            output_tokens=request.num_output_tokens, cached_tokens=life.cached,
            page_rows=self.recorder.page_rows(life.req), last_token=life.last_us, status="200" if is_finished else None,
            reason=status.removeprefix("FINISHED_").lower(),
        )  # fmt: skip
        self._rows.forget(life.rid)

    def freed(self, owner: Any, request: Any, result: Any) -> None:
        """A request gives its blocks back; those that a prefix cache may hand out stay what they are."""
        life = self._lives.get(request.request_id)
        if self.recorder is None or life is None or not life.pages:
            return
        blocks = owner.get_blocks(request.request_id).blocks[0]
        self._release(request, life, [b.block_id for b in blocks if b.ref_cnt == 1 and b.block_hash is None])

    def freed_later(self, owner: Any, request: Any, result: Any) -> None:
        """A request gives its blocks back once the passes under way have ended: until they are given away they are its own."""
        life = self._lives.get(request.request_id)
        if self.recorder is not None and life is not None and life.pages:
            self._release(request, life, [])

    def filed(
        self, owner: Any, request: Any, blocks: Any, num_cached_blocks: int, num_full_blocks: int, result: Any
    ) -> None:
        """Blocks of a request are in the prefix cache from here on. Told when their tags are known."""
        life = self._lives.get(request.request_id)
        if self.recorder is None or life is None or num_cached_blocks >= num_full_blocks:
            return
        full = blocks[num_cached_blocks:num_full_blocks]
        keyed = [(block.block_id, self._key(block.block_hash)) for block in full if block.block_hash is not None]
        self._filing.append((life, [page for page, _ in keyed], [key for _, key in keyed], num_cached_blocks))

    def stopped(self, owner: Any, result: Any) -> None:
        """The engine is shut down; by a fault of its own where one is on its way up."""
        error = sys.exc_info()[1]
        if self.recorder is None or error is None or not isinstance(error, Exception):
            self.close()
            return
        self._passes.close_run()
        columns = {"pool": POOL, "n": 1, "action": f"the engine died of {type(error).__name__}"}
        self.recorder.record("checks", "mismatch", detector="engine", **columns)
        self.recorder.flush()
        self.recorder.abandon()

    def close(self) -> None:
        """The process ends in order."""
        if self.recorder is not None:
            self._passes.close_run()
            self._lose_unwatched()
            self.recorder.close()

    def failed(self, hook: Hook, why: str) -> None:
        """A handler raised: the rows that it would have written are missing."""
        self.failures += 1
        if self.recorder is not None:
            self._lose(hook.table)

    def _admit(self, owner: Any, admitted: list[tuple[str, Any, int]]) -> None:
        """Requests that are handed over whole, with their tables: blocks of their own first, then those they found."""
        size = self._tables.page_tokens
        found: list[tuple[Life, list[int]]] = []
        is_loaded = False
        for request_id, groups, computed in admitted:
            life, table = self._lives.get(request_id), list(groups[0])
            if life is None:
                continue
            self._admitted(life)
            life.computed, life.until = computed, owner.requests[request_id].num_tokens
            if life.pages:  # reserved when a read was asked for
                if table[: len(life.pages)] != life.pages:
                    self._lose("pages")
                self._tables.extend(life, table[len(life.pages) :])
                continue
            hits = computed // size
            if computed % size or not all(self._was_filed(page, life) for page in table[:hits]):
                hits, is_loaded = 0, True
            life.hits, life.cached = hits, max(life.cached, hits * size)
            found.append((life, table))
        for life, table in found:
            given = table[life.hits :]
            life.pages, life.tags = table[: life.hits], [0] * life.hits
            self._tables.extend(life, given)
        self._flush_filing()
        for life, table in found:
            if life.hits:
                own, tags = life.pages[life.hits :], life.tags[life.hits :]
                self._tables.share(life, table[: life.hits])
                life.pages, life.tags = life.pages + own, life.tags + tags
        if is_loaded:  # by a connector that is not followed
            self._lose("transfers")

    def _admitted(self, life: Life) -> None:
        """A request has been given blocks for the first time."""
        if not life.admitted:
            life.admitted = True
            self._rows.recorder.record("requests", "admit", req=life.req)

    def _was_filed(self, page: int, reader: Life) -> bool:
        """Whether a request can have found a block in the prefix cache: what it files itself, it had from elsewhere."""
        filing = (pages for life, pages, _, _ in self._filing if life is not reader)
        return self._tables.is_filed(page) or any(page in pages for pages in filing)

    def _flush_filing(self) -> None:
        for life, pages, keys, pos in self._filing:
            if life.pages[pos : pos + len(pages)] == pages:  # else it was preempted before a pass had them
                self._tables.file(life, pages, keys, pos)
        self._filing.clear()

    def _release(self, request: Any, life: Life, pages: list[int]) -> None:
        self._passes.close_run()
        self._flush_filing()
        preempted = not request.is_finished()
        if preempted and life.computed:
            life.paused = True
            self._rows.recorder.record("requests", "pause", req=life.req, reason="preempted")
        cause = "retract" if preempted else "abort" if request.status.name == "FINISHED_ABORTED" else life.cause
        self._tables.clear(life, cause, pages)
        self._passes.forget(life)
        if life.ended:
            self._lives.pop(request.request_id)

    def _identity(self, request: Any) -> dict[str, Any]:
        """Columns of whose request it is: tenant and salt under the key, the adapter as it is called."""
        salt, lora = request.cache_salt, getattr(request, "lora_request", None)
        extra = getattr(getattr(request, "sampling_params", None), "extra_args", None) or {}
        named = extra.get(self._settings.tenant_field) or salt
        keyed = self._keyed
        return {
            "tenant": keyed.tenant(str(named)) if keyed is not None and named else None,
            "salt_fp": keyed.number(salt) if keyed is not None and salt else None,
            "adapter": str(lora.lora_name) if lora is not None else None,
        }

    def _name(self, request_id: str) -> str:
        return api_id(request_id, self._settings.random_ids)

    def _key(self, block_hash: bytes) -> int:
        return self._keyed.number(block_hash.hex()) if self._keyed is not None else hash(block_hash) | 1

    def _tell(self, owner: Any, now: int) -> None:
        recorder = self._rows.recorder
        self._passes.close_run()
        self._told_us = now
        pool = owner.kv_cache_manager.block_pool
        free, total = pool.get_num_free_blocks(), pool.num_gpu_blocks - 1
        recorder.record(
            "gauges",
            "sample",
            pool=POOL,
            free=free,
            used=total - free,
            running=len(owner.running),
            waiting=len(owner.waiting),
        )
        recorder.record(
            "checks", "probe", detector="recorder", n=self.meter.calls, found=self.meter.ns // 1000,
            action=f"us in its handlers; {self.failures} failed",
        )  # fmt: skip

    def _lose_unwatched(self) -> None:
        for table in sorted({hook.table for hook in self._missing} - {"workers"}):
            self._lose(table)

    def _lose(self, table: str) -> None:
        if self.recorder is not None and table != "workers":
            self.recorder.miss(table, POOL if table in ("pages", "cache") else None)
