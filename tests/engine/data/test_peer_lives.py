"""Writes that were granted by a former life of a peer, on real pools."""

import threading

import numpy as np
import pytest

from engine.kv_cache import KVCachePool, PageGeometry
from engine.ledger.tag import make_tag
from engine.peer_lives import PeerLives
from engine.transport import Callbacks, WriteBatch

GEOMETRY = PageGeometry(1, 4, 1, 8)


class Outcome:
    """What became of one batch."""

    def __init__(self):
        self.over, self.bytes, self.problem = threading.Event(), None, None
        self.callbacks = Callbacks(lambda: None, self._done, self._failed)

    def _done(self, count):
        self.bytes = count
        self.over.set()

    def _failed(self, problem, *_):
        self.problem = problem
        self.over.set()


@pytest.fixture
def prefill(tmp_path):
    pool = KVCachePool(tmp_path / "prefill.kv", 4, GEOMETRY, create=True)
    pool.payload[:] = 7
    made = PeerLives(pool)
    yield made
    made.close()


def life(tmp_path, transport, peer, epoch):
    """A life of a peer comes up and is connected; its pool."""
    pool = KVCachePool(tmp_path / f"{peer}-{epoch}.kv", 4, GEOMETRY, create=True)
    transport.connect(peer, {**pool.describe(), "epoch": epoch})
    return pool


def submit(transport, peer, epoch, xfer):
    outcome, pages = Outcome(), np.array([1, 2], np.int32)
    tag, tokens = make_tag(3, epoch, 9), np.full(2, 4, np.int32)
    transport.submit(WriteBatch(xfer, 5, 0, pages, peer, pages, tag, tokens), outcome.callbacks)
    return outcome


def test_what_a_former_life_granted_does_not_land_in_the_next(prefill, tmp_path):
    first = life(tmp_path, prefill, "decode-0", 1)
    prefill.gate(11)
    held = submit(prefill, "decode-0", 1, 11)
    second = life(tmp_path, prefill, "decode-0", 2)
    late = submit(prefill, "decode-0", 1, 12)  # its prompt was still being computed when the next life came up
    prefill.ungate()
    for outcome in (held, late):
        assert outcome.over.wait(10)
        assert "decode-0 (epoch 1) is not connected" in outcome.problem
    assert not first.payload.any() and not second.payload.any()
    fresh = submit(prefill, "decode-0", 2, 13)
    assert fresh.over.wait(10)
    assert fresh.bytes == 2 * GEOMETRY.page_bytes
    assert (second.payload[1:3] == 7).all()


def test_other_peers_keep_their_lives(prefill, tmp_path):
    other = life(tmp_path, prefill, "decode-10", 1)
    life(tmp_path, prefill, "decode-1", 1)
    life(tmp_path, prefill, "decode-1", 2)
    outcome = submit(prefill, "decode-10", 1, 14)
    assert outcome.over.wait(10)
    assert (outcome.problem, outcome.bytes) == (None, 2 * GEOMETRY.page_bytes)
    assert (other.payload[1:3] == 7).all()
