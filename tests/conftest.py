"""Fixtures that several rooms share: real engine processes, started once per test session and setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

TENANTS = {"acme": "key-acme", "brio": "key-brio", "cyan": "key-cyan"}
SHAPE = {"prefill_pages": 33, "decode_pages": 97, "page_tokens": 16, "context_tokens": 1024}
"""Prefill holds 512 tokens, decode 1,536; the advertised context is 1,024."""


@dataclass(frozen=True)
class LiveEngine:
    """A started engine as its client and its operator see it."""

    state: dict
    ledger: Path
    run_dir: Path

    @property
    def gateway(self) -> str:
        return self.state["gateway"]

    @property
    def prefill(self) -> str:
        return self.state["prefill"][0]

    @property
    def decode(self) -> str:
        return self.state["decode"][0]

    @property
    def hop(self) -> dict[str, str]:
        """Headers that open the workers' doors."""
        return {"x-kvwitness-hop": Path(self.state["hop_key_file"]).read_text()}

    def client(self, tenant: str = "acme") -> dict[str, str]:
        """Headers of a tenant's client."""
        return {"authorization": f"Bearer {TENANTS[tenant]}"}


@pytest.fixture(scope="session")
def live_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LiveEngine]]:
    """Factory: `live_engine(faults=(...), defences={...}, **shape)`; the same setting gives the same engine."""
    # Imported here: only tests that start an engine pay for torch.
    from engine.config import EngineConfig
    from engine.serve import start_engine

    running: dict[tuple, tuple] = {}

    def start(
        faults: tuple[str, ...] = (), defences: dict[str, str] | None = None, truth: bool = False, **shape: int
    ) -> LiveEngine:
        key = (tuple(faults), tuple(sorted((defences or {}).items())), truth, tuple(sorted(shape.items())))
        if key not in running:
            place = tmp_path_factory.mktemp("engine")
            config = EngineConfig(
                ledger=str(place / "ledger"), run_dir=str(place / "run"), faults=tuple(faults), defences=defences or {},
                truth=truth, tenants=TENANTS, **{**SHAPE, **shape},
            )  # fmt: skip
            engine = start_engine(config)
            running[key] = engine, LiveEngine(engine.state, place / "ledger", place / "run")
        return running[key][1]

    yield start
    for engine, _ in running.values():
        engine.stop()
