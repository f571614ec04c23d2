"""Where the prefill of one response stands among all of its length.

Invariant: of how many is always said, and that few say little; a rank accuses nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.core.latency import FEW, length_label
from console.core.printable import counted, printable
from console.core.snapshot import RANK, Snapshot
from forensics.rows import rows_of


@dataclass(frozen=True)
class PrefillRank:
    """`percentile`: how many of a hundred of the `requests` of its length were faster. `ms`: what it took, at `worker`."""

    worker: str
    bucket_tokens: int
    ms: float
    requests: int
    percentile: float

    @property
    def words(self) -> str:
        """`prefill 39.2 ms at prefill-0, p88 of 289 requests of 2–4k tokens`."""
        of = f"{counted(self.requests, 'request')} of {length_label(self.bucket_tokens)} tokens"
        few = f", too few to tell (n < {FEW})" if self.requests < FEW else ""
        return f"prefill {self.ms:,.1f} ms at {printable(self.worker)}, p{self.percentile:.0f} of {of}{few}"


def prefill_rank(shown: Snapshot, rid: str) -> PrefillRank | None:
    """Of the response's last prefill; None where none was timed. May take seconds the first time. Raises QueryStopped."""
    rows = shown.once(("prefill rank", rid), lambda: rows_of(shown.prefill_times({"rid": rid}, RANK)[RANK]))
    if not rows:
        return None
    last = rows[-1]
    return PrefillRank(last["worker"], last["bucket_tokens"], last["ms"], last["requests"], last["percentile"])
