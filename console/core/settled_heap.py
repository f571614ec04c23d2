"""What a reading leaves in memory, kept out of the sight of the collector of cycles.

Invariant: nothing that could be collected stays for longer than until the next large reading. Python goes through all
that lives whenever enough has been made since: hundreds of ms beside a large record, in the middle of a key.
"""

from __future__ import annotations

import gc

LARGE = 50_000
"""Rows of a record from which on going through it costs more than a key may."""


def settle(rows: int) -> None:
    """After a reading of so many rows: collect once, what an earlier reading has left among it, and then leave it alone."""
    if rows >= LARGE:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
