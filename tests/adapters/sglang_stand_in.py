"""Stand-ins for what the recorder hooks of SGLang 0.5.23: the same names and signatures, and only so much behind them.

A test against the published wheels holds these signatures to theirs.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

SUCCESS, FAILED = 4, 0


class Reason:
    def __init__(self, **said: Any) -> None:
        self.said = said

    def to_json(self) -> dict[str, Any]:
        return self.said


class Req:
    """A request: what the hooks read of one."""

    def __init__(self, rid: str, room: int, tokens: int) -> None:
        self.rid, self.bootstrap_room = rid, room
        self.origin_input_ids, self.output_ids = [7] * tokens, []
        self.finished_reason = None

    def set_finish_with_abort(self, error_msg, status_code=400, err_type="BadRequestError"):
        self.origin_input_ids = [0]
        self.finished_reason = Reason(type="abort", message=error_msg, status_code=status_code)


class Scheduler:
    def __init__(self, server_args, port_args):
        self.disaggregation_mode = SimpleNamespace(value=server_args["mode"])
        self.page_size, self.max_total_num_tokens = 64, server_args["pool"]
        self.max_req_input_len = server_args["pool"] - 6
        self.model_config = SimpleNamespace(context_len=1 << 20)
        self.transfer_backend = SimpleNamespace(value="mooncake")
        self.ps = SimpleNamespace(tp_rank=1, tp_size=2, pp_rank=0, pp_size=1, dp_rank=None)

    def run_batch(self, batch, pp_proxy_tensors=None):
        return batch


class PrefillBootstrapQueue:
    def add(self, req, num_kv_heads):
        return None


class DecodePreallocQueue:
    def add(self, req, is_retracted=False, is_rebootstrap=False):
        return None


class MooncakeKVReceiver:
    def __init__(self, room: int) -> None:
        self.bootstrap_room = room

    def send_metadata(
        self,
        kv_indices,
        aux_index=None,
        state_indices=None,
        decode_prefix_len=None,
        destination=None,
        device_kv_indices=None,
    ):
        return None


class CommonKVReceiver:
    def __init__(self, room: int) -> None:
        self.bootstrap_room = room

    def _send_abort_notification(self, *, force_arm=False):
        return None


class MooncakeKVManager:
    def add_transfer_request(
        self, bootstrap_room, kv_indices, index_slice, is_last_chunk, aux_index=None, state_indices=None, num_kv_tokens=None,
        *, wait_event=None, indices_event=None, trace_ctx=None,
    ):  # fmt: skip
        return None


class CommonKVManager:
    def conclude_transfer(self, *, bootstrap_room, status, targets=None, failure_reason=None):
        return status

    def note_abort_ack(self, bootstrap_room, prefill_rank, generation):
        return None


class DecodeTransferQueue:
    def _commit_transfer_to_req(self, decode_req):
        return True

    def _defer_release(self, decode_req):
        return None

    def _do_release(self, decode_req, idx):
        return None


class SchedulerOutputStreamer:
    def stream_output(self, reqs, return_logprob, skip_req=None):
        return None


class SchedulerDisaggregationDecodeMixin:
    def _handle_kv_checksum_mismatch(self, req, msg):
        return None


def prepare_abort(req, error_message, status_code=None):
    req.finished_reason = Reason(type="abort", message=error_message, status_code=status_code)


def release_kv_cache(req, tree_cache, *, checkpoint):
    return None


_PARTS = (
    Scheduler, PrefillBootstrapQueue, DecodePreallocQueue, Req, MooncakeKVReceiver, CommonKVReceiver, MooncakeKVManager,
    CommonKVManager, DecodeTransferQueue, SchedulerOutputStreamer, SchedulerDisaggregationDecodeMixin,
)  # fmt: skip


class StandIn:
    """One process's worth of the engine: its functions can be wrapped without touching those of another."""

    def __init__(self, without: tuple[str, ...] = ()) -> None:
        self.parts: dict[str, Any] = {part.__name__: type(part.__name__, (part,), {}) for part in _PARTS}
        self.parts |= {"prepare_abort": prepare_abort, "release_kv_cache": release_kv_cache}
        self.without = without

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["parts"][name]

    def resolve(self, target: str) -> Any:
        """As `pkgutil.resolve_name` does it, by the last one or two names."""
        *_, owner, name = target.split(".")
        if name in self.without or (owner not in self.parts and name not in self.parts):
            raise AttributeError(f"no {name} here")
        return getattr(self.parts[owner], name) if owner in self.parts else self.parts[name]

    def place(self, target: str, handler: Any, kind: str) -> None:
        """As SGLang's registry does it: BEFORE may give other arguments, AFTER another result; None gives none."""
        original = self.resolve(target)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if kind == "BEFORE":
                args, kwargs = handler(*args, **kwargs) or (args, kwargs)
                return original(*args, **kwargs)
            result = original(*args, **kwargs)
            other = handler(result, *args, **kwargs)
            return result if other is None else other

        *_, owner, name = target.split(".")
        if owner in self.parts:
            setattr(self.parts[owner], name, wrapped)
        else:
            self.parts[name] = wrapped


def pages(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)
