"""A live stream over ZMQ with a replay endpoint, and what is in the capture file afterwards."""

import io
import threading

import msgpack
import zmq
from reading import KEYED

from engine.adapters.kv_frames import read_capture
from engine.adapters.kv_subscriber import END, Follower, follow
from engine.adapters.notes import Notes
from engine.adapters.observed import Unseen


def message(seq):
    return [b"kv", seq.to_bytes(8, "big"), msgpack.packb([1_796_000_000.0 + seq, [["BlockRemoved", [seq], "GPU"]], 0])]


def keys_in(data):
    notes = Notes()
    rows = list(read_capture(data, "x", KEYED, notes))
    return [f"-{row.rows}" if isinstance(row, Unseen) else row.columns["keys"][0] for row in rows], notes


def test_what_was_missed_comes_from_the_replay_and_in_order():
    out = io.BytesIO()
    buffer = [message(seq) for seq in range(10)]
    follower = Follower(out, lambda first: buffer[first:], lambda: 1_796_000_000_000_000_000)
    for seq in (2, 3, 6):
        follower.take(message(seq))
    assert keys_in(out.getvalue())[0] == [0, 1, 2, 3, 4, 5, 6]
    assert (follower.written, follower.replayed, follower.missing) == (7, 4, 0)


def test_what_the_publisher_has_no_more_stays_missing():
    out = io.BytesIO()
    follower = Follower(out, lambda first: [message(4)], lambda: 1)
    follower.take(message(6))
    found, notes = keys_in(out.getvalue())
    assert found == ["-4", 4, "-1", 6] and follower.missing == 5
    assert len(notes.lost) == 2


def test_repeats_are_dropped_a_restart_is_not_and_rubbish_is_counted():
    out = io.BytesIO()
    follower = Follower(out, None, lambda: 1)
    for parts in (message(0), message(1), message(1), [b"x"], message(0)):
        follower.take(parts)
    assert keys_in(out.getvalue())[0] == [0, 1, "-1", 0]
    assert (follower.lives, follower.bad) == (2, 1)


def test_over_zmq_with_the_replay_protocol_of_the_engines(tmp_path):
    context = zmq.Context()
    publisher, router = context.socket(zmq.XPUB), context.socket(zmq.ROUTER)
    ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in (publisher, router)]

    def serve():
        assert publisher.poll(20_000) and publisher.recv() == b"\x01kv"  # the subscription stands
        assert router.poll(20_000)
        client, empty, first = router.recv_multipart()
        for seq in range(int.from_bytes(first, "big"), 3):
            router.send_multipart([client, b"", *message(seq)])
        router.send_multipart([client, empty, b"", END, b""])
        for seq in (3, 4):
            publisher.send_multipart(message(seq))

    server = threading.Thread(target=serve)
    server.start()
    out = tmp_path / "frames.bin"
    endpoints = [f"tcp://127.0.0.1:{port}" for port in ports]
    done = follow(endpoints[0], endpoints[1], "kv", out, 5, 20_000)
    server.join()
    for socket in (publisher, router):
        socket.close(linger=0)
    context.term()
    assert keys_in(out.read_bytes())[0] == [0, 1, 2, 3, 4]
    assert (done.replayed, done.missing) == (3, 0)
