"""Keyed numbers in place of what must not stand in a ledger: cache salts, routing keys, session names.

Invariant: without the key a number confirms no guess, and the key stands in no ledger.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Keyed:
    """`key`: 16 to 64 bytes that the operator keeps."""

    key: bytes

    def number(self, text: str) -> int:
        """A signed 64-bit number that stands for `text`."""
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, key=self.key).digest(), "big", signed=True)

    def tenant(self, text: str) -> str:
        """A pseudonym that stands for whom `text` names."""
        return "t-" + hashlib.blake2b(text.encode(), digest_size=5, key=self.key).hexdigest()
