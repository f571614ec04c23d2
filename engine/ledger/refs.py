"""Page references: (ref_seq, ref_off, n, fingerprint) back to page lists.

Invariant: a reference that cannot be resolved, or whose fingerprint does not hold, gives no list at all.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from engine.ledger.fingerprint import fingerprint
from engine.ledger.schema import PAGE_LIST


def expand_pages(pages: pa.Table) -> pa.Table:
    """The `pages` table with every page list in full; null where a reference cannot be resolved."""
    names = ("worker", "epoch", "seq", "tag", "n", "ref_seq", "ref_off", "fingerprint")
    columns = zip(*(pages[name].to_pylist() for name in names), strict=True)
    lists = pages["pages"].to_pylist()
    written: dict[tuple[str, int, int], list[int]] = {}
    for i, (worker, epoch, seq, tag, n, ref_seq, ref_off, expected) in enumerate(columns):
        if lists[i] is not None:
            written[worker, epoch, seq] = lists[i]
        elif ref_seq is not None:
            whole = written.get((worker, epoch, ref_seq))
            part = whole[ref_off : ref_off + n] if whole is not None else []
            if len(part) == n and fingerprint(np.array(part, np.int32), tag) == expected:
                lists[i] = part
    at = pages.column_names.index("pages")
    return pages.set_column(at, pa.field("pages", PAGE_LIST), pa.array(lists, PAGE_LIST))
