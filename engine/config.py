"""Configuration: one frozen object per process, written by `engine serve` and read once by each child."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

PREFIX_CACHES = ("off", "user", "tenant", "organisation", "global")


@dataclass(frozen=True)
class EngineConfig:
    """What the whole engine is asked to be."""

    ledger: str
    run_dir: str
    port: int = 0
    prefill_pages: int = 257  # of each prefill worker's pool; page 0 is the null block
    decode_pages: int = 513
    page_tokens: int = 16
    context_tokens: int = 4096
    faults: tuple[str, ...] = ()
    defences: dict[str, str] = field(default_factory=dict)
    truth: bool = False
    step_run_ms: int = 1000  # longest run of passes in one steps row; 0 = a row per pass
    tenants: dict[str, str] = field(default_factory=dict)  # tenant, or organisation/tenant -> API key
    prefill_workers: int = 1
    decode_workers: int = 1
    prefix_cache: str = "off"  # of PREFIX_CACHES: among whom cached prompt pages may pass at prefill
    decode_prefix_cache: str = "off"  # the same at decode
    host_pages: int = 0  # of each worker's host pool, with its null block; 0: there is none
    reserved_tokens: int | None = None  # of an answer, for which pages are kept at its start; None: for all of it
    transfer_pages: int = 8  # in one write batch
    hold_timeout_ms: int = 30_000  # for which pages of an aborted handoff wait for their writer
    on_timeout: str = "quarantine"  # or release
    scrub: bool = False  # zero pages before they go back to the pool


@dataclass(frozen=True)
class WorkerAddress:
    """Where one worker is reached, in every life of it: its HTTP door and its wire."""

    name: str
    role: str  # prefill or decode
    url: str
    wire_port: int

    @property
    def wire(self) -> str:
        """Address of its wire, as peers and the bodies of requests name it."""
        return f"tcp://127.0.0.1:{self.wire_port}"


@dataclass(frozen=True)
class ProcessConfig:
    """One child's part: its name, its doors, all workers, and the keys (which never enter the ledger)."""

    engine: EngineConfig
    role: str
    name: str
    ordinal: int
    http_port: int
    wire_port: int
    workers: tuple[WorkerAddress, ...]
    memory: str  # what the names of this worker's pool files begin with
    checkpoint: str
    hop_key: str
    ledger_key: str

    def save(self, path: Path) -> None:
        """Write as JSON, readable by the owner alone."""
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path: Path) -> ProcessConfig:
        """The inverse of `save`."""
        raw = json.loads(path.read_text())
        engine = raw.pop("engine")
        engine["faults"] = tuple(engine["faults"])
        workers = tuple(WorkerAddress(**worker) for worker in raw.pop("workers"))
        return cls(engine=EngineConfig(**engine), workers=workers, **raw)
