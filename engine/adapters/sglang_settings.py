"""Settings of the SGLang recorder, from the environment of the server's processes.

Invariant: without KVW_LEDGER nothing is recorded and nothing is hooked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Where and under which names to record. `first_ordinal`: of this server's rank 0; ranks count on from there."""

    ledger: Path
    name: str
    first_ordinal: int
    key: bytes

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings | None:
        """Settings; None where recording is off. Raises ValueError for one that cannot be used."""
        ledger = environment.get("KVW_LEDGER")
        if not ledger:
            return None
        ordinal = environment.get("KVW_ORDINAL", "0")
        if not ordinal.isascii() or not ordinal.isdigit() or int(ordinal) >= 1 << 13:
            raise ValueError(f"KVW_ORDINAL={ordinal}: give a number below 8192, another one for every server")
        key_file = environment.get("KVW_KEY_FILE")
        key = Path(key_file).read_bytes() if key_file else b""
        if key and not 16 <= len(key) <= 64:
            raise ValueError(f"KVW_KEY_FILE={key_file}: a key has 16 to 64 bytes")
        return cls(Path(ledger), environment.get("KVW_NAME", ""), int(ordinal), key)
