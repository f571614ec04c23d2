"""Stand-ins for what the recorder hooks of vLLM 0.32: the same names and signatures, and only so much behind them.

`make test-vllm` holds them to the real ones: there the same hooks attach to vLLM itself.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

PAGE = 4


class Status:
    def __init__(self, name: str) -> None:
        self.name = name


class Request:
    def __init__(self, name, prompt, salt=None, tenant=None, params=None):
        self.request_id, self.cache_salt, self.lora_request, self.kv_transfer_params = name, salt, None, params
        self.num_prompt_tokens, self.num_output_tokens, self.num_computed_tokens = len(prompt), 0, 0
        self.tokens, self.status = list(prompt), Status("WAITING")
        self.sampling_params = SimpleNamespace(extra_args={"tenant": tenant} if tenant else None)

    @property
    def num_tokens(self):
        return len(self.tokens)

    def is_finished(self):
        return self.status.name.startswith("FINISHED")

    def block_hash(self, i):
        return repr((self.cache_salt, self.tokens[: (i + 1) * PAGE])).encode()


class Block:
    def __init__(self, number):
        self.block_id, self.ref_cnt, self.block_hash, self.is_null = number, 0, None, False


class Blocks:
    def __init__(self, blocks):
        self.blocks = (blocks,)

    def get_unhashed_block_ids_all_groups(self):
        return [[block.block_id for block in self.blocks[0] if block.block_hash is None]]


class BlockPool:
    def __init__(self, count):
        self.num_gpu_blocks = count
        self.blocks = [Block(i) for i in range(count)]
        self.free = deque(self.blocks[1:])
        self.by_hash: dict[bytes, Block] = {}

    def get_num_free_blocks(self):
        return len(self.free)

    def get_new_block(self):
        block = self.free.popleft()
        self.by_hash.pop(block.block_hash, None)
        block.block_hash, block.ref_cnt = None, 1
        return block

    def cache_full_blocks(
        self, request, blocks, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id, block_mask=None
    ):
        for i in range(num_cached_blocks, num_full_blocks):
            blocks[i].block_hash = request.block_hash(i)
            self.by_hash[blocks[i].block_hash] = blocks[i]


class KVCacheManager:
    def __init__(self, count):
        self.block_pool = BlockPool(count)
        self.tables: dict[str, list[Block]] = {}

    def get_blocks(self, request_id):
        return Blocks(self.tables.get(request_id, []))

    def free(self, request):
        for block in reversed(self.tables.pop(request.request_id, [])):
            block.ref_cnt -= 1
            if not block.ref_cnt:
                (self.block_pool.free.append if block.block_hash else self.block_pool.free.appendleft)(block)

    def pop_blocks_for_free(self, request):
        return self.tables.pop(request.request_id, [])


class Connector:
    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        request.kv_transfer_params["do_remote_prefill"] = False


class Scheduler:
    """Serves what it is told to: `admit` a request, or let those that run take one more step."""

    def __init__(self, role: str | None = None, blocks: int = 16, groups: int = 1, ranks: int = 1) -> None:
        self.block_size = PAGE
        transfer = SimpleNamespace(kv_role=role, engine_id=role and role.replace("kv_", "")) if role else None
        self.vllm_config = SimpleNamespace(
            kv_transfer_config=transfer, model_config=SimpleNamespace(model="/models/tiny", max_model_len=64),
            parallel_config=SimpleNamespace(tensor_parallel_size=ranks, pipeline_parallel_size=1, data_parallel_index=0),
        )  # fmt: skip
        group = SimpleNamespace(kv_cache_spec=SimpleNamespace(page_size_bytes=256), layer_names=["a", "b"])
        self.kv_cache_config = SimpleNamespace(num_blocks=blocks, kv_cache_groups=[group] * groups)
        self.kv_cache_manager = KVCacheManager(blocks)
        self.connector = Connector()
        self.requests: dict[str, Request] = {}
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.lent: dict[str, Any] | None = None

    def add_request(self, request):
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def schedule(self, throttle_prefills=False):
        new, counts, grown = [], {}, {}
        for request in self.running:
            counts[request.request_id] = 1
            grown[request.request_id] = self._grow(request, request.num_computed_tokens + 1)
        for request in [one for one in self.waiting if one.status.name == "WAITING"]:
            if request.num_computed_tokens:
                hits = request.num_computed_tokens
            else:
                hits = self._hit(request)
                if request.kv_transfer_params and request.kv_transfer_params.get("do_remote_prefill"):
                    self._grow(request, request.num_tokens)
                    external = request.num_tokens - hits
                    self.connector.update_state_after_alloc(request, self.blocks(request), external)
                    request.status = Status("WAITING_FOR_REMOTE_KVS")
                    request.num_computed_tokens = request.num_tokens - 1
                    continue
                request.num_computed_tokens = hits
            self._grow(request, request.num_tokens)
            counts[request.request_id] = request.num_tokens - request.num_computed_tokens
            table = [block.block_id for block in self.blocks(request).blocks[0]]
            new.append(
                SimpleNamespace(
                    req_id=request.request_id, block_ids=(table,), num_computed_tokens=request.num_computed_tokens
                )
            )
            self.waiting.remove(request)
            self.running.append(request)
            request.status = Status("RUNNING")
        for name, count in counts.items():
            self.requests[name].num_computed_tokens += count
            self._file(self.requests[name])
        names = list(grown)
        cached = SimpleNamespace(
            req_ids=names, new_block_ids=[(grown[name],) if grown[name] else None for name in names], resumed_req_ids=set(),
            num_computed_tokens=[0] * len(names),
        )  # fmt: skip
        return SimpleNamespace(
            scheduled_new_reqs=new, scheduled_cached_reqs=cached, num_scheduled_tokens=counts,
            scheduled_spec_decode_tokens={}, kv_cache_block_copies=None,
        )  # fmt: skip

    def update_from_output(self, scheduler_output, model_runner_output):
        for name in scheduler_output.num_scheduled_tokens:
            request = self.requests[name]
            request.tokens.append(7)
            request.num_output_tokens += 1
        if model_runner_output.kv_connector_output is not None:
            self._update_from_kv_xfer_finished(model_runner_output.kv_connector_output)

    def finish(self, request, status="FINISHED_LENGTH_CAPPED"):
        is_reading = request.status.name == "WAITING_FOR_REMOTE_KVS"
        request.status = Status(status)
        for queue in (self.running, self.waiting):
            if request in queue:
                queue.remove(request)
        return self._free_request(request, is_reading)

    def preempt(self, request):
        self.kv_cache_manager.free(request)
        request.status, request.num_computed_tokens = Status("WAITING"), 0
        self.running.remove(request)
        self.waiting.append(request)

    def _free_request(self, request, delay_free_blocks=False):
        if self.lent is None and not delay_free_blocks:
            self._free_blocks(request)
        return self.lent, None

    def _free_blocks(self, request):
        self.kv_cache_manager.free(request)
        del self.requests[request.request_id]

    def _update_from_kv_xfer_finished(self, kv_connector_output):
        for name in kv_connector_output.finished_recving or ():
            if self.requests[name].is_finished():
                self._free_blocks(self.requests[name])
            else:
                self.requests[name].status = Status("WAITING")
        for name in kv_connector_output.finished_sending or ():
            self._free_blocks(self.requests[name])

    def blocks(self, request):
        return self.kv_cache_manager.get_blocks(request.request_id)

    def step(self, received=(), sent=(), stats=None, failed=()):
        """One pass, and what the workers tell after it: a read that `failed` is over like one that did not."""
        handed = self.schedule()
        names = list(handed.num_scheduled_tokens)
        moved = SimpleNamespace(
            finished_recving={*received, *failed}, finished_sending=set(sent), failed_recving=set(failed), invalid_block_ids=set(),
            kv_connector_stats=SimpleNamespace(data=stats or {}),
        )  # fmt: skip
        output = SimpleNamespace(
            sampled_token_ids=[[7] for _ in names], req_id_to_index={name: i for i, name in enumerate(names)},
            kv_connector_output=moved,
        )  # fmt: skip
        self.update_from_output(handed, output)

    def _grow(self, request, tokens):
        table = self.kv_cache_manager.tables.setdefault(request.request_id, [])
        given = [self.kv_cache_manager.block_pool.get_new_block() for _ in range(-(-tokens // PAGE) - len(table))]
        table += given
        return [block.block_id for block in given]

    def _hit(self, request):
        pool, table = self.kv_cache_manager.block_pool, self.kv_cache_manager.tables.setdefault(request.request_id, [])
        for i in range((request.num_tokens - 1) // PAGE):
            block = pool.by_hash.get(request.block_hash(i))
            if block is None:
                break
            if not block.ref_cnt:
                pool.free.remove(block)
            block.ref_cnt += 1
            table.append(block)
        return len(table) * PAGE

    def _file(self, request):
        table = self.kv_cache_manager.tables[request.request_id]
        full = min(request.num_computed_tokens, request.num_tokens) // PAGE
        done = sum(block.block_hash is not None for block in table)
        if full > done:
            self.kv_cache_manager.block_pool.cache_full_blocks(request, table, done, full, PAGE, 0)


class EngineCore:
    def shutdown(self):
        return None


class StandIn:
    """Resolves a hook's target among copies of these classes, so that every test patches its own."""

    def __init__(self) -> None:
        bases = (Scheduler, KVCacheManager, BlockPool, EngineCore)
        self.parts = {base.__name__: type(base.__name__, (base,), dict(base.__dict__)) for base in bases}
        self.parts["NixlPullConnectorScheduler"] = type("NixlPull", (Connector,), dict(Connector.__dict__))

    def resolve(self, target):
        for i, part in enumerate(target.split(".")):
            if part in self.parts:
                found = self.parts[part]
                for name in target.split(".")[i + 1 :]:
                    found = getattr(found, name)
                return found
        raise ModuleNotFoundError(target)

    def scheduler(self, role=None, blocks=16, groups=1, ranks=1):
        made = self.parts["Scheduler"](role, blocks, groups, ranks)
        made.kv_cache_manager.__class__ = self.parts["KVCacheManager"]
        made.kv_cache_manager.block_pool.__class__ = self.parts["BlockPool"]
        made.connector.__class__ = self.parts["NixlPullConnectorScheduler"]
        return made
