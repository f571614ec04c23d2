"""The pool file: layout, sharing between mappings, and the room it needs."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from engine.kv_cache import HEADER, KVCachePool, PageGeometry, shared_directory

GEOMETRY = PageGeometry(layers=3, page_tokens=4, kv_heads=2, head_dim=8)


@pytest.fixture
def pool(tmp_path):
    return KVCachePool(tmp_path / "pool", 5, GEOMETRY, create=True)


def test_a_pages_bytes_lie_together(pool):
    pool.payload[2] = 7
    content = np.fromfile(pool.path, np.float32, 5 * GEOMETRY.floats)
    assert np.flatnonzero(content).tolist() == list(range(2 * GEOMETRY.floats, 3 * GEOMETRY.floats))
    assert GEOMETRY.page_bytes == 3 * 2 * 4 * 2 * 8 * 4


def test_a_header_is_a_cache_line_of_aligned_fields():
    assert HEADER.itemsize == 64
    assert all(offset % kind.itemsize == 0 for kind, offset in list(HEADER.fields.values())[:-1])


def test_the_regions_do_not_overlap(pool):
    pool.payload[:], pool.stamps[:] = 1.5, -1
    pool.headers["tag"], pool.headers["tokens"] = 3, 4
    assert (pool.payload == 1.5).all()
    assert (pool.stamps == -1).all()
    assert (pool.headers["tag"] == 3).all()


def test_a_peers_mapping_sees_the_same_bytes(pool):
    peer = KVCachePool.attach(pool.describe())
    peer.payload[1, 2, 0, 3, 1, 4], peer.stamps[4, 3], peer.headers["tag"][0] = 9, 8, 7
    assert (pool.payload[1, 2, 0, 3, 1, 4], pool.stamps[4, 3], pool.headers["tag"][0]) == (9, 8, 7)


def test_a_fresh_pool_is_all_zeros_and_replaces_nothing(pool, tmp_path):
    assert not np.fromfile(pool.path, np.int8).any()
    with pytest.raises(FileExistsError):
        KVCachePool(tmp_path / "pool", 5, GEOMETRY, create=True)


@pytest.mark.parametrize("path", ["pool", "nowhere"])
def test_attaching_to_what_is_no_such_pool_says_so(pool, tmp_path, path):
    with pytest.raises(ValueError, match=f"{path}: is no KV pool of 6 pages"):
        KVCachePool(tmp_path / path, 6, GEOMETRY, create=False)


def test_its_blocks_are_really_there(pool):
    """A sparse file on a full tmpfs would kill the process at its first write."""
    status = os.stat(pool.path)
    assert status.st_blocks * 512 >= status.st_size == 5 * (GEOMETRY.page_bytes + 64 + 4 * 8)


def test_shared_memory_is_used_only_where_there_is_room(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    free = shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else 0
    made = [shared_directory(free), shared_directory(1)]
    assert made[0].parent == tmp_path
    assert made[1].parent == (Path("/dev/shm") if free > 2 and os.access("/dev/shm", os.W_OK) else tmp_path)
    made[1].rmdir()


def test_unlink_leaves_mappings_alive(pool):
    pool.unlink()
    pool.payload[0] = 1
    assert not pool.path.exists()
