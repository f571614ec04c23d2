"""One-sided writes: what arrives where, in which order, and what holds them back or fails them."""

import threading

import numpy as np
import pytest
from data_bench import DEADLINE, Handed

from engine.integrity import digest_mismatches, seal_pages
from engine.kv_cache import KVCachePool, PageGeometry
from engine.transport import SharedMemoryTransport, WriteBatch

GEOMETRY = PageGeometry(layers=2, page_tokens=4, kv_heads=1, head_dim=8)


def filled(path, pages, seed):
    pool = KVCachePool(path, pages, GEOMETRY, create=True)
    rng = np.random.default_rng(seed)
    pool.payload[:] = rng.standard_normal(pool.payload.shape, np.float32)
    pool.stamps[:] = rng.integers(1, 1 << 62, pool.stamps.shape)
    pool.headers["tag"] = seed
    return pool


@pytest.fixture
def source(tmp_path):
    return filled(tmp_path / "source", 8, 1)


@pytest.fixture
def target(tmp_path):
    return filled(tmp_path / "target", 12, 2)


@pytest.fixture
def transport(source, target):
    made = SharedMemoryTransport(source)
    made.connect("decode-0", target.describe())
    yield made
    made.close()


def batch(xfer=5, src=(1, 2), dst=(7, 3), tag=77, tokens=(4, 2), chunk=0, to="decode-0"):
    src_pages, dst_pages = np.array(src, np.int32), np.array(dst, np.int32)
    return WriteBatch(xfer, 9, chunk, src_pages, to, dst_pages, tag, np.array(tokens, np.int32))


def put(transport, *given, **changes):
    handed = Handed(*given)
    transport.submit(batch(**changes), handed.callbacks())
    return handed


def test_pages_arrive_whole_and_nothing_else_is_touched(transport, source, target):
    before = target.payload.copy(), target.headers.copy(), target.stamps.copy()
    seal_pages(source, [1])
    handed = put(transport).wait()
    assert handed.events == ["post", ("done", 2 * GEOMETRY.page_bytes)]
    for src, dst in ((1, 7), (2, 3)):
        assert np.array_equal(target.payload[dst], source.payload[src])
        assert np.array_equal(target.stamps[dst], source.stamps[src])
    assert target.headers[["tag", "tokens", "opened", "closed"]][[7, 3]].tolist() == [(77, 4, 5, 5), (77, 2, 5, 5)]
    others = [page for page in range(12) if page not in (3, 7)]
    for now, then in zip((target.payload, target.headers, target.stamps), before, strict=True):
        assert now[others].tobytes() == then[others].tobytes()


def test_the_digest_travels_with_the_page(transport, source, target):
    seal_pages(source, [1])
    put(transport).wait()
    assert target.headers["digest"][7] == source.headers["digest"][1] != 0
    assert target.headers["digest"][3] == 0
    assert digest_mismatches(target, np.array([7, 3])) == ()
    target.payload[7, 1, 0, 3, 0, 5] += 1
    assert digest_mismatches(target, np.array([3, 7])) == (1,)


def test_post_comes_before_the_first_byte_and_done_after_the_last(transport, source, target):
    seen = []
    handed = put(
        transport,
        lambda: seen.append(target.payload[[7, 3]].copy()),
        lambda: seen.append(target.payload[[7, 3]].copy()),
    ).wait()
    assert handed.events[0] == "post"
    assert not np.isin(seen[0], source.payload[[1, 2]]).any()
    assert np.array_equal(seen[1], source.payload[[1, 2]])


def test_what_the_source_holds_at_the_write_counts_not_at_the_submit(transport, source, target):
    transport.gate(5)
    handed = put(transport)
    source.payload[1] = 42
    transport.ungate(5)
    handed.wait()
    assert (target.payload[7] == 42).all()


def test_a_gate_holds_one_transfer_and_lets_others_pass(transport, target):
    before = target.payload[7].copy()
    transport.gate(5)
    held = put(transport, xfer=5)
    put(transport, xfer=6, dst=(8, 9)).wait()
    assert held.events == []
    assert np.array_equal(target.payload[7], before)
    transport.ungate(5)
    assert held.wait().events[0] == "post"


def test_opening_all_gates_keeps_each_transfers_order(transport):
    order = []
    for xfer in (5, 6):
        transport.gate(xfer)
    handed = [
        put(transport, lambda key=(xfer, chunk): order.append(key), xfer=xfer, chunk=chunk)
        for chunk in range(3)
        for xfer in (5, 6)
    ]
    transport.ungate()
    for each in handed:
        each.wait()
    assert [chunk for xfer, chunk in order if xfer == 5] == [0, 1, 2]
    assert [chunk for xfer, chunk in order if xfer == 6] == [0, 1, 2]


def test_cancel_drops_what_waits_but_not_what_was_posted(transport, source, target):
    posted, go_on = threading.Event(), threading.Event()

    def stop():
        posted.set()
        assert go_on.wait(DEADLINE)

    first = put(transport, stop, chunk=0)
    waiting = [put(transport, chunk=chunk, dst=(8, 9)) for chunk in (1, 2)]
    other = put(transport, xfer=6, dst=(10, 11))
    assert posted.wait(DEADLINE)
    assert transport.cancel(5) == 2
    go_on.set()
    assert first.wait().events[-1] == ("done", 2 * GEOMETRY.page_bytes)
    other.wait()
    assert [each.events for each in waiting] == [[], []]
    assert np.array_equal(target.payload[7], source.payload[1])
    assert transport.cancel(5) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"to": "decode-9"}, "decode-9 is not connected; connected: decode-0"),
        ({"dst": (7, 12)}, "pages 7 to 12 are not all in the decode-0 pool of 12 pages"),
        ({"src": (-1, 2)}, "pages -1 to 2 are not all in the source pool of 8 pages"),
        ({"dst": (7,)}, "2 pages to 1 with 2 token counts"),
    ],
)
def test_a_batch_that_cannot_be_written_fails_before_its_post(transport, target, changes, words):
    before = target.payload.tobytes(), target.headers.tobytes()
    handed = put(transport, **changes).wait()
    assert handed.events == [("failed", words, 0)]
    assert (target.payload.tobytes(), target.headers.tobytes()) == before
    assert put(transport).wait().events[0] == "post", "others still go"


def test_a_callback_that_raises_fails_its_batch_only(transport, caplog):
    def refuse():
        raise RuntimeError("no more rows")

    assert put(transport, refuse).wait().events == ["post", ("failed", "RuntimeError: no more rows", None)]
    assert "transfer 5, batch 0 to decode-0 failed" in caplog.text
    assert put(transport).wait().events[0] == "post"


def test_close_ends_the_write_under_way_and_starts_no_other(source, target):
    transport = SharedMemoryTransport(source)
    transport.connect("decode-0", target.describe())
    transport.gate(5)
    waiting = put(transport)
    transport.close()
    transport.ungate()
    assert waiting.events == []


def test_a_peer_of_another_geometry_is_refused(transport, tmp_path):
    other = KVCachePool(tmp_path / "other", 4, PageGeometry(2, 8, 1, 8), create=True)
    with pytest.raises(ValueError, match=r"decode-1 has pages of .*page_tokens=8.* this worker of .*page_tokens=4"):
        transport.connect("decode-1", other.describe())


def test_a_peer_that_describes_another_file_is_refused(transport, target):
    with pytest.raises(ValueError, match="is no KV pool of 13 pages"):
        transport.connect("decode-1", {**target.describe(), "pages": 13})
