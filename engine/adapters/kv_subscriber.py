"""A live KV event stream over ZMQ into a capture file, with what was missed asked for at the replay endpoint.

Invariant: frames stand in the file in the order of their numbers as far as the publisher still has them; what it has no
more stays missing, and the reader of the file says so.

    python -m engine.adapters.kv_subscriber --endpoint tcp://HOST:5557 --replay tcp://HOST:5558 --out FOLDER/frames.bin
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import zmq

from engine.adapters.kv_frames import Frame, frame_of, write_capture

END = b"\xff" * 8
Parts = list[bytes]


@dataclass
class Follower:
    """Writes messages in order. `replay(first)` gives the messages from `first` on that the publisher still has."""

    out: BinaryIO
    replay: Callable[[int], list[Parts]] | None
    now_ns: Callable[[], int]
    last: int = -1
    written: int = 0
    replayed: int = 0
    missing: int = 0
    bad: int = 0
    lives: int = field(default=1)

    def take(self, parts: Parts) -> None:
        """One live message."""
        frame = frame_of(parts, None)
        if frame is None:
            self.bad += 1
            return
        if frame.seq == 0 and self.last > 0:
            self.last, self.lives = -1, self.lives + 1
        if frame.seq <= self.last:
            return  # a replay brought it already
        if frame.seq > self.last + 1:
            self._fill(frame)
        self._write(frame, parts)

    def catch_up(self) -> None:
        """Ask for what was published before the subscription stood."""
        self._fill(None)

    def _fill(self, before: Frame | None) -> None:
        for parts in self.replay(self.last + 1) if self.replay is not None else ():
            frame = frame_of(parts, None)
            if frame is None:
                self.bad += 1
            elif frame.seq > self.last and (before is None or frame.seq < before.seq):
                self._write(frame, parts)
                self.replayed += 1

    def _write(self, frame: Frame, parts: Parts) -> None:
        self.missing += frame.seq - self.last - 1
        self.last, self.written = frame.seq, self.written + 1
        write_capture(self.out, parts, self.now_ns())


def ask_replay(context: zmq.Context[Any], endpoint: str, first: int, timeout_ms: int) -> list[Parts]:
    """Messages `[topic, number, payload]` from `first` on; those that came before `timeout_ms` of silence."""
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    found: list[Parts] = []
    try:
        socket.connect(endpoint)
        socket.send_multipart([b"", first.to_bytes(8, "big")])
        while socket.poll(timeout_ms):
            parts = socket.recv_multipart()[1:]  # behind the empty delimiter
            if END in parts[-2:]:
                break
            found.append(parts)
    finally:
        socket.close()
    return found


def follow(
    endpoint: str, replay: str | None, topic: str, out: Path, stop_after: int | None, timeout_ms: int
) -> Follower:
    """Write the stream to `out` until `stop_after` messages are there, or until interrupted."""
    context: zmq.Context[Any] = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt_string(zmq.SUBSCRIBE, topic)
    with out.open("ab") as file:
        asked = (lambda first: ask_replay(context, replay, first, timeout_ms)) if replay is not None else None
        follower = Follower(file, asked, time.time_ns)
        try:
            socket.connect(endpoint)
            follower.catch_up()
            while stop_after is None or follower.written < stop_after:
                follower.take(socket.recv_multipart())
                file.flush()
        except KeyboardInterrupt:
            pass
        finally:
            socket.close()
            context.term()
    return follower


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description="Write a KV event stream to a capture file for `forensics ingest`.")
    parser.add_argument("--endpoint", required=True, help="PUB endpoint, such as tcp://127.0.0.1:5557")
    parser.add_argument("--replay", help="ROUTER endpoint of --kv-events-config's replay_endpoint")
    parser.add_argument("--topic", default="", help="topic prefix; all by default")
    parser.add_argument("--out", type=Path, required=True, help="capture file, appended to")
    parser.add_argument("--stop-after", type=int, help="end after so many messages")
    parser.add_argument("--timeout-ms", type=int, default=1000, help="most silence of a replay")
    given = parser.parse_args()
    done = follow(given.endpoint, given.replay, given.topic, given.out, given.stop_after, given.timeout_ms)
    print(f"{done.written} messages, {done.replayed} of them replayed, {done.missing} missing, {done.bad} unreadable")


if __name__ == "__main__":
    main()
