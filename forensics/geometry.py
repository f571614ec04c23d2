"""Geometry of pages as the two ends of a transfer registered it (`config` rows).

Invariant: only fields that both ends state are compared; a writer that fills one part of a page has a smaller page.
"""

from __future__ import annotations

from forensics.rows import Pages, Row

SIZE, LAYOUT = "size", "layout"
"""Pages of other sizes (or of a size that is lost): where bytes land is not known. The same size, read otherwise than
it was written."""

_OF_SIZE = ("page_bytes", "page_tokens")
_OF_LAYOUT = ("kv_format", "kv_heads", "head_dim")
_OF_A_PART = frozenset({"page_bytes", "kv_heads"})


def flaw_of(source: Row | None, target: Row | None, parts: int, ranks: tuple[int, int] = (1, 1)) -> str | None:
    """SIZE, LAYOUT or None, for a transfer from a pool of config `source` into one part of `parts` of `target`'s.

    `ranks`: tensor-parallel ranks of both ends, each of which has its share of every page.
    """
    if source is None or target is None:
        return SIZE
    left_out = _OF_A_PART if parts > 1 else frozenset()
    source, target = (_of_all_ranks(*end) for end in zip((source, target), ranks, strict=True))
    for flaw, names in ((SIZE, _OF_SIZE), (LAYOUT, _OF_LAYOUT)):
        if any(name not in left_out and _differ(source[name], target[name]) for name in names):
            return flaw
    return None


def _of_all_ranks(config: Row, ranks: int) -> Row:
    return config | {"page_bytes": config["page_bytes"] and config["page_bytes"] * ranks}


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def pages_hit(pages: Pages, source_bytes: int | None, target_bytes: int | None) -> set[int]:
    """Pages that a writer with pages of `source_bytes` may touch when it means `pages` of `target_bytes`."""
    if not source_bytes or not target_bytes or source_bytes == target_bytes:
        return set(pages)
    hit: set[int] = set()
    for page in pages:
        hit |= set(range(page * source_bytes // target_bytes, -(-(page + 1) * source_bytes // target_bytes)))
        hit |= set(range(page, page + -(-source_bytes // target_bytes)))
    return hit
