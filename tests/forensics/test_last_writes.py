"""The last write before each read: by a walk over operations and by one sort, as by looking at every write."""

from __future__ import annotations

import numpy as np
import pytest

from forensics.last_writes import NONE, SMALL, Operations, _sorted, _walked, last_writes

PAGES = 40


def drawn(source: np.random.Generator, count: int, most: int, far: int) -> Operations:
    lengths = source.integers(0, most, count)
    page = source.integers(0, PAGES, int(lengths.sum()))
    return Operations(source.integers(0, 50, count) * far, np.concatenate([[0], np.cumsum(lengths)]), page)


def one_by_one(writes: Operations, reads: Operations) -> list[int]:
    """For each page read, the place of the write of it with the greatest seq not above the read's, the last of equals."""
    written = np.repeat(writes.seq, np.diff(writes.bounds)).tolist()
    at = np.repeat(reads.seq, np.diff(reads.bounds)).tolist()
    found = []
    for page, seq in zip(reads.page.tolist(), at, strict=True):
        earlier = [(w, i) for i, w in enumerate(written) if writes.page[i] == page and w <= seq]
        found.append(max(earlier)[1] if earlier else NONE)
    return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("far", [1, 1 << 55])
def test_both_ways_find_what_looking_at_every_write_finds(seed: int, far: int) -> None:
    source = np.random.default_rng(seed)
    most = 2 * SMALL if seed % 2 else 3
    writes, reads = (drawn(source, int(source.integers(0, 30)), most, far) for _ in range(2))
    wanted = one_by_one(writes, reads)
    assert _walked(writes, reads, PAGES).tolist() == wanted
    assert _sorted(writes, reads).tolist() == wanted
    assert last_writes(writes, reads, PAGES).tolist() == wanted
