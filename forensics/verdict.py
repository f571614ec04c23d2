"""Verdicts, findings and responses: the words and columns that every engine, command and screen shares.

Invariant: precedence between verdicts is the order in which `Verdict` lists them, and nothing else in the
project ranks them.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa


class Verdict(StrEnum):
    """What is known about one response, worst first (`docs/verdicts.md`)."""

    CONTAMINATED = "contaminated"
    UNKNOWN = "unknown"
    CORRUPT = "corrupt"
    EXPOSED = "exposed"
    CLEAN = "clean"

    @property
    def rank(self) -> int:
        """0 is the gravest."""
        return list(Verdict).index(self)


class Proof(StrEnum):
    """`proved` rests on seq and edges only; in `inferred` a clock took part."""

    PROVED = "proved"
    INFERRED = "inferred"


class Kind(StrEnum):
    """What one finding says about some pages of one request."""

    FOREIGN = "foreign"
    UNKNOWN = "unknown"
    CORRUPT = "corrupt"
    EXPOSED = "exposed"
    CLEAN = "clean"


MECHANISM_UNKNOWN = "mechanism unknown"

FINDING_COLUMNS = pa.schema(
    [
        ("rid", pa.string()),
        ("attempt", pa.int32()),
        ("tenant", pa.string()),
        ("worker", pa.string()),
        ("epoch", pa.int32()),
        ("req", pa.int64()),
        ("pool", pa.string()),
        ("kind", pa.string()),
        ("proof", pa.string()),
        ("derived", pa.bool_()),
        ("delivered", pa.string()),  # 'yes' | 'no' | 'unknown': a token left after the first such step
        ("mechanism", pa.string()),
        ("donor_rid", pa.string()),
        ("donor_tenant", pa.string()),
        ("pages", pa.int64()),
        ("page_list", pa.list_(pa.int32())),
        ("first_step", pa.int64()),
        ("first_step_last", pa.int64()),
        ("first_step_proof", pa.string()),
        ("first_seq", pa.int64()),
        ("reason", pa.string()),
    ]
)
"""One row per (request on one worker, pool, kind, proof, derived, delivered, mechanism, donor, reason)."""

RESPONSE_COLUMNS = pa.schema(
    [
        ("rid", pa.string()),
        ("tenant", pa.string()),
        ("purpose", pa.string()),
        ("verdict", pa.string()),
        ("proof", pa.string()),
        ("derived", pa.bool_()),
        ("mechanism", pa.string()),
        ("donors", pa.list_(pa.string())),
        ("pages", pa.int64()),
        ("first_step", pa.int64()),
        ("first_step_last", pa.int64()),
        ("first_worker", pa.string()),
        ("started", pa.timestamp("us", tz="UTC")),
        ("finished", pa.timestamp("us", tz="UTC")),
        ("status", pa.string()),
        ("reason", pa.string()),
    ]
)
