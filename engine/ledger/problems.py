"""What can be wrong with a ledger's files.

Invariant: a problem says what is wrong, where, and what to do; nothing is repaired and nothing is read around.
"""

from __future__ import annotations

from dataclasses import dataclass

LOSS, BROKEN = "loss", "broken"


@dataclass(frozen=True)
class Problem:
    """Something wrong with the ledger's files.

    severity 'loss': rows are missing, and gaps say which. 'broken': the evidence contradicts itself (exit 3).
    """

    kind: str
    severity: str
    where: str
    what: str
    remedy: str
