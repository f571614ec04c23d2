"""What each read found: the last write of its page before it, for operations on many pages at a time.

Invariant: a write counts from its own seq on, for reads of that seq too, and for its own pages alone; of writes of one seq
the later in the list stands. Both ways of finding it give the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forensics.ranking import ranked
from forensics.rows import Ints

NONE = -1
SMALL = 8
"""Pages an operation on the average, below which a step for each operation costs more than sorting all of their pages."""
_BITS = 62


@dataclass(frozen=True)
class Operations:
    """Operation i, at `seq[i]`, is on the pages [bounds[i], bounds[i + 1]) of `page`; all int64, numbered from 0."""

    seq: Ints
    bounds: Ints
    page: Ints


def last_writes(writes: Operations, reads: Operations, pages: int) -> Ints:
    """For each of `reads.page`, the place in `writes.page` of the write that it found; NONE where there was none.

    All page numbers are below `pages`; operations may be in any order.
    """
    many = len(writes.page) + len(reads.page) >= SMALL * (len(writes.seq) + len(reads.seq))
    return _walked(writes, reads, pages) if many else _sorted(writes, reads)


def _walked(writes: Operations, reads: Operations, pages: int) -> Ints:
    """One step for each operation, in order of seq, on a table of what every page holds."""
    holds, found = np.full(pages, NONE, np.int64), np.empty(len(reads.page), np.int64)
    count, place = len(writes.seq), np.arange(len(writes.page))
    order = np.argsort(np.concatenate([writes.seq, reads.seq]), kind="stable")
    of_writes, of_reads = writes.bounds.tolist(), reads.bounds.tolist()
    written, read = writes.page, reads.page
    for operation in order.tolist():
        if operation < count:
            first, last = of_writes[operation], of_writes[operation + 1]
            holds[written[first:last]] = place[first:last]
        else:
            first, last = of_reads[operation - count], of_reads[operation - count + 1]
            found[first:last] = holds[read[first:last]]
    return found


def _sorted(writes: Operations, reads: Operations) -> Ints:
    """One sort of numbers that carry page, seq and place."""
    many, count = len(writes.page), len(writes.page) + len(reads.page)
    found = np.full(len(reads.page), NONE, np.int64)
    if not many or not len(found):
        return found
    seqs = np.concatenate([np.repeat(one.seq, np.diff(one.bounds)) for one in (writes, reads)])
    carried = np.concatenate([writes.page, reads.page])
    width, bits = int(seqs.max()).bit_length(), count.bit_length()
    if int(carried.max()).bit_length() + width + bits > _BITS:
        known, seqs = ranked(seqs)
        width = len(known).bit_length()
    carried <<= width
    carried |= seqs
    carried <<= bits
    carried |= np.arange(count)  # writes come before reads of the same seq
    carried.sort()
    place, page = carried & ((1 << bits) - 1), carried >> (width + bits)
    is_read = place >= many
    at = np.flatnonzero(is_read)
    last = np.maximum.accumulate(np.where(is_read, 0, np.arange(count)))[at]
    is_found = (page[last] == page[at]) & ~is_read[last]
    found[place[at] - many] = np.where(is_found, place[last], NONE)
    return found
