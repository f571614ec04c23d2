"""Configuration: one frozen object per process, written by `engine serve` and read once by each child."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class EngineConfig:
    """What the whole engine is asked to be."""

    ledger: str
    run_dir: str
    port: int = 0
    prefill_pages: int = 257  # page 0 is the null block
    decode_pages: int = 513
    page_tokens: int = 16
    context_tokens: int = 4096
    faults: tuple[str, ...] = ()
    defences: dict[str, str] = field(default_factory=dict)
    truth: bool = False
    step_run_ms: int = 1000  # longest run of passes in one steps row; 0 = a row per pass
    tenants: dict[str, str] = field(default_factory=dict)  # tenant -> API key


@dataclass(frozen=True)
class ProcessConfig:
    """One child's part: its name, its doors, its peers, and the keys (which never enter the ledger)."""

    engine: EngineConfig
    role: str
    name: str
    ordinal: int
    http_port: int
    wire_port: int
    prefill_url: str
    decode_url: str
    prefill_wire: str
    memory: str
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
        return cls(engine=EngineConfig(**engine), **raw)
