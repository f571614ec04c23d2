"""Page references: (ref_seq, ref_off, n, fingerprint) back to page lists.

Invariant: a reference that cannot be resolved, or whose fingerprint does not hold, gives no list at all.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from engine.ledger.fingerprint import fingerprints
from engine.ledger.schema import PAGE_LIST


def expand_pages(pages: pa.Table) -> pa.Table:
    """The `pages` table with every page list in full; null where a reference cannot be resolved. Any row order."""
    rows = pages.num_rows
    lists = pages["pages"].combine_chunks()
    values = lists.values.to_numpy() if rows else np.empty(0, np.int32)
    starts = lists.offsets.to_numpy()[:-1].astype(np.int64)
    lengths = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    known = lists.is_valid().to_numpy(zero_copy_only=False)
    refs = np.flatnonzero(~known & pages["ref_seq"].is_valid().to_numpy())
    if len(refs):
        targets = _targets(pages, known, refs)
        offsets, counts = _int64(pages, "ref_off", refs), _int64(pages, "n", refs)
        inside = (targets >= 0) & (offsets >= 0) & (counts > 0) & (offsets + counts <= lengths[targets])
        refs, targets, offsets, counts = refs[inside], targets[inside], offsets[inside], counts[inside]
        begins = starts[targets] + offsets
        if len(refs):
            found = fingerprints(_gather(values, begins, counts), counts, _int64(pages, "tag", refs))
            holds = found == _int64(pages, "fingerprint", refs)
            refs, begins, counts = refs[holds], begins[holds], counts[holds]
        starts[refs], lengths[refs], known[refs] = begins, counts, True
    lengths[~known] = 0
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int32)
    full = pa.ListArray.from_arrays(
        pa.array(ends), pa.array(_gather(values, starts, lengths), pa.int32()), type=PAGE_LIST, mask=pa.array(~known)
    )
    return pages.set_column(pages.column_names.index("pages"), pa.field("pages", PAGE_LIST), full)


def _targets(pages: pa.Table, known: np.ndarray, refs: np.ndarray) -> np.ndarray:
    """Index of the row that each reference names, a row of the same worker epoch with a list; -1 where there is none."""
    workers = pages["worker"].combine_chunks().dictionary_encode().indices.to_numpy()
    epochs, seqs = pages["epoch"].to_numpy(), pages["seq"].to_numpy()
    _, writer = np.unique(np.stack([workers, epochs]), axis=1, return_inverse=True)
    writer = writer.reshape(-1)
    holders = np.flatnonzero(known)
    holders = holders[np.lexsort((seqs[holders], writer[holders]))]
    wanted = _int64(pages, "ref_seq", refs)
    targets = np.full(len(refs), -1, np.int64)
    for number in np.unique(writer[refs]):
        its_holders, its_refs = holders[writer[holders] == number], np.flatnonzero(writer[refs] == number)
        if len(its_holders):
            at = np.minimum(np.searchsorted(seqs[its_holders], wanted[its_refs]), len(its_holders) - 1)
            hit = seqs[its_holders[at]] == wanted[its_refs]
            targets[its_refs[hit]] = its_holders[at[hit]]
    return targets


def _int64(pages: pa.Table, name: str, rows: np.ndarray) -> np.ndarray:
    """A column at `rows`, -1 for null."""
    return pages[name].take(pa.array(rows)).combine_chunks().cast(pa.int64()).fill_null(-1).to_numpy()


def _gather(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Slices of `values` end to end."""
    ends = np.cumsum(lengths)
    return values[np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)]
