"""SGLang's crash dumps (--crash-dump-folder): a pickle, opened with an allow-list and nothing else.

Invariant: no code of the pickle's choosing ever runs. Plain containers are built; SGLang's own record classes become
inert records of their fields; any other name is refused, and the refusal says which.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict, deque
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from engine.adapters.json_values import mapping, text, whole
from engine.adapters.keyed import Keyed
from engine.adapters.notes import Notes
from engine.adapters.observed import Said
from engine.adapters.server_info import is_server_info, read_server_info
from engine.adapters.sglang_requests import finished_request
from engine.adapters.times import from_unix

_BUILT: dict[tuple[str, str], Any] = {
    ("builtins", "dict"): dict, ("builtins", "list"): list, ("builtins", "set"): set, ("builtins", "tuple"): tuple,
    ("builtins", "frozenset"): frozenset, ("collections", "OrderedDict"): OrderedDict, ("collections", "deque"): deque,
    ("datetime", "datetime"): datetime,
}  # fmt: skip
"""What a name may build: nothing that takes a size, so that a short pickle cannot ask for much memory."""
_RECORDS = frozenset(
    {
        ("sglang.srt.managers.io_struct", "GenerateReqInput"), ("sglang.srt.managers.io_struct", "EmbeddingReqInput"),
        ("sglang.srt.server_args", "ServerArgs"), ("sglang.srt.sampling.sampling_params", "SamplingParams"),
    }
)  # fmt: skip
_TOP = frozenset({"server_args", "config_updates", "resolved_config", "requests", "launch_command"})


class Refused(pickle.UnpicklingError):
    """A name outside the allow-list; says which."""


class Record:
    """Fields of an object whose class is known by name only."""

    def __init__(self, *_: object, **fields: object) -> None:
        self.fields: dict[str, Any] = dict(fields)

    def __setstate__(self, state: object) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        self.fields = {str(name): value for part in parts if isinstance(part, dict) for name, value in part.items()}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _RECORDS:
            return Record
        if (module, name) in _BUILT:
            return _BUILT[module, name]
        raise Refused(f"{module}.{name} is not on the allow-list of crash dumps")

    def persistent_load(self, pid: Any) -> Any:
        raise Refused("persistent references are not on the allow-list of crash dumps")


def load_dump(data: bytes) -> object:
    """What a dump holds. Raises Refused, or pickle.UnpicklingError where it is no whole pickle."""
    try:
        return _Restricted(io.BytesIO(data)).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # bytes of any kind raise errors of any kind
        raise pickle.UnpicklingError(f"no whole pickle: {type(error).__name__}") from error


def read_dump(data: bytes, where: str, keyed: Keyed, notes: Notes) -> Iterator[Said]:
    """Rows of a crash dump: the requests of its last five minutes, and what the server was."""
    try:
        dump = load_dump(data)
    except pickle.UnpicklingError as error:
        notes.skip(where, f"crash dump refused: {error}")
        return
    if not isinstance(dump, dict):
        notes.skip(where, "crash dump is no dictionary")
        return
    notes.know("crash dump", {str(name) for name in dump}, _TOP)
    resolved = dump.get("resolved_config")
    if isinstance(resolved, dict) and is_server_info(resolved):
        yield from read_server_info(resolved, notes)
    requests = dump.get("requests")
    if not isinstance(requests, list):
        notes.skip(where, "crash dump without a list of requests")
        return
    for index, entry in enumerate(requests):
        place = f"{where} request {index}"
        if not isinstance(entry, tuple | list) or len(entry) != 4:
            notes.skip(place, "request of a crash dump is not (asked, answered, created, finished)")
            continue
        asked, out, created, finished = entry
        fields = asked.fields if isinstance(asked, Record) else mapping(asked)
        rid = text(fields.get("rid"))
        if rid is None:
            notes.skip(place, "request of a crash dump names no single request")
            continue
        notes.take("crash dump request")
        meta = dict(mapping(mapping(out).get("meta_info")))
        meta.setdefault("request_received_ts", created)
        yield from finished_request(
            meta, from_unix(finished), fields, rid, whole(fields.get("bootstrap_room")), keyed, notes
        )
