"""The KV pool as one shared file: payload, headers and stamps of every page.

A page's payload is contiguous ([layers, 2, page_tokens, kv_heads, head_dim] float32): it is the unit of transfer
and of the digest. Its 64-byte header lies in a region of its own and says under which tag the content was last
written, and which remote write opened and closed the page last (equal numbers: none is under way). Stamps name the
writer of every token slot: physical truth, never read by a defence.

Invariant: torch-free; tensors are made over `payload` by whoever computes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

HEADER = np.dtype(
    [("tag", "<i8"), ("digest", "<i8"), ("opened", "<i8"), ("closed", "<i8"), ("tokens", "<i4"), ("reserved", "V28")]
)


@dataclass(frozen=True)
class PageGeometry:
    """Shape of one page; both sides of a transfer must agree on it."""

    layers: int
    page_tokens: int
    kv_heads: int
    head_dim: int

    @property
    def floats(self) -> int:
        """float32 values in one page's payload."""
        return self.layers * 2 * self.page_tokens * self.kv_heads * self.head_dim

    @property
    def page_bytes(self) -> int:
        """Bytes of one page's payload."""
        return self.floats * 4

    @property
    def stored_bytes(self) -> int:
        """Bytes that one page takes in a pool file, header and stamps included."""
        return self.page_bytes + HEADER.itemsize + 8 * self.page_tokens


class KVCachePool:
    """Views of one pool file.

    `payload` float32 [pages, layers, 2, page_tokens, kv_heads, head_dim], `headers` `HEADER` [pages], `stamps` int64
    [pages, page_tokens]. `create` makes the file (FileExistsError, OSError when there is no room), else it must be
    there with the right size (ValueError).
    """

    def __init__(self, path: Path, pages: int, geometry: PageGeometry, *, create: bool) -> None:
        self.path, self.pages, self.geometry = path, pages, geometry
        header_at = pages * geometry.page_bytes
        stamps_at = header_at + pages * HEADER.itemsize
        size = stamps_at + pages * geometry.page_tokens * 8
        if create:
            _create(path, size)
        elif not path.exists() or path.stat().st_size != size:
            raise ValueError(
                f"{path}: is no KV pool of {pages} pages of {geometry}; peer and worker differ in geometry"
            )
        shape = (pages, geometry.layers, 2, geometry.page_tokens, geometry.kv_heads, geometry.head_dim)
        self.payload = np.asarray(np.memmap(path, np.float32, "r+", 0, shape))
        self.headers = np.asarray(np.memmap(path, HEADER, "r+", header_at, (pages,)))
        self.stamps = np.asarray(np.memmap(path, np.int64, "r+", stamps_at, (pages, geometry.page_tokens)))

    def describe(self) -> dict[str, Any]:
        """What a peer needs in order to `attach`: plain values that can travel in a message."""
        return {"path": str(self.path), "pages": self.pages, "geometry": asdict(self.geometry)}

    @classmethod
    def attach(cls, description: dict[str, Any]) -> KVCachePool:
        """A peer's pool. Raises ValueError where the file is no such pool."""
        geometry = PageGeometry(**description["geometry"])
        return cls(Path(description["path"]), description["pages"], geometry, create=False)

    def unlink(self) -> None:
        """Remove the file; mappings stay valid."""
        self.path.unlink(missing_ok=True)


def _create(path: Path, size: int) -> None:
    """A fresh file of zeros, its blocks really there (a full tmpfs would otherwise kill the process by SIGBUS)."""
    with open(path, "xb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def shared_directory(size: int) -> Path:
    """A new directory for pool files of `size` bytes in all, in shared memory where there is room for twice that."""
    root = Path("/dev/shm")
    fits = root.is_dir() and os.access(root, os.W_OK) and shutil.disk_usage(root).free > 2 * size
    return Path(tempfile.mkdtemp(prefix="kvwitness-", dir=root if fits else None))
