"""Page tags: the generation of a page as one int64, the same in header, block table and ledger.

Layout, from the high bits: worker ordinal (13) | epoch (12) | seq (38) of the RESERVE that last allocated
the page. 63 bits, so a tag is never negative; 0 is no tag.
"""

from __future__ import annotations

from typing import NamedTuple

ORDINAL_BITS, EPOCH_BITS, SEQ_BITS = 13, 12, 38


class Tag(NamedTuple):
    """A tag taken apart."""

    ordinal: int
    epoch: int
    seq: int


def make_tag(ordinal: int, epoch: int, seq: int) -> int:
    """Pack the three numbers. Raises ValueError where one does not fit its bits."""
    for name, value, bits in (("ordinal", ordinal, ORDINAL_BITS), ("epoch", epoch, EPOCH_BITS), ("seq", seq, SEQ_BITS)):
        if not 0 <= value < 1 << bits:
            raise ValueError(f"{name} {value} does not fit {bits} bits of a page tag")
    return ordinal << (EPOCH_BITS + SEQ_BITS) | epoch << SEQ_BITS | seq


def split_tag(tag: int) -> Tag:
    """The inverse of `make_tag`."""
    return Tag(tag >> (EPOCH_BITS + SEQ_BITS), tag >> SEQ_BITS & (1 << EPOCH_BITS) - 1, tag & (1 << SEQ_BITS) - 1)


def seq_of(tag: int) -> int:
    """The seq in a tag."""
    return tag & (1 << SEQ_BITS) - 1
