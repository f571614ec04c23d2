"""Frames of a KV event stream in order: what is missing between them, and where the publisher began anew.

Invariant: sequence numbers are dense from 0 in one life of a publisher. A number that is not there is a gap, whether at
the start, in the middle or before a restart's unknown end; nothing is put in its place.

A capture file holds records `u64 received ns | u8 frames | frames x (u32 length | bytes)`, big-endian; the frames of one
record are topic, sequence number (8 bytes big-endian), msgpack payload.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from engine.adapters.keyed import Keyed
from engine.adapters.kv_events import read_batch, read_decoded_batch
from engine.adapters.notes import Notes
from engine.adapters.observed import Said, Unseen
from engine.adapters.times import from_unix

_HEAD, _LENGTH, _SEQ = struct.Struct(">QB"), struct.Struct(">I"), struct.Struct(">Q")
MOST_BYTES = 1 << 28
"""Longest frame that is believed; a longer one is a broken length."""


@dataclass(frozen=True)
class Frame:
    """One batch as it came: sequence number, payload, when it was received (microseconds UTC, None = not known)."""

    seq: int
    payload: bytes
    received_us: int | None = None


class Sequence:
    """Follows the sequence numbers of one publisher and tells what is missing."""

    def __init__(self, where: str, notes: Notes) -> None:
        self._where, self._notes, self._next = where, notes, 0

    def follow(self, seq: int, t_us: int | None) -> Iterator[Unseen]:
        """What was not seen before batch `seq`."""
        if seq == 0 and self._next > 0:
            self._notes.lose(
                self._where, f"the publisher began anew behind batch {self._next - 1}: its last are unknown"
            )
            yield Unseen(t_us, "cache")
            self._next = 0
        elif seq < self._next:
            self._notes.lose(self._where, f"batch {seq} came behind batch {self._next - 1}: out of order, or a restart")
            yield Unseen(t_us, "cache")
        elif seq > self._next:
            first, last = self._next, seq - 1
            self._notes.lose(self._where, f"batches {first} to {last} of the KV event stream are missing")
            yield Unseen(t_us, "cache", seq - self._next)
        self._next = seq + 1


def read_frames(frames: Iterable[Frame], where: str, keyed: Keyed, notes: Notes) -> Iterator[Said]:
    """Rows of a stream of frames, with its gaps."""
    sequence = Sequence(where, notes)
    for frame in frames:
        rows = list(read_batch(frame.payload, f"{where} batch {frame.seq}", keyed, notes))
        yield from sequence.follow(frame.seq, rows[0].t_us if rows else frame.received_us)
        yield from rows


def read_capture(data: bytes, where: str, keyed: Keyed, notes: Notes) -> Iterator[Said]:
    """Rows of a capture file."""
    yield from read_frames(frames_of(data, where, notes), where, keyed, notes)


def frames_of(data: bytes, where: str, notes: Notes) -> Iterator[Frame]:
    """The frames of a capture file; a torn or senseless end is told, since nothing behind it can be found again."""
    at = 0
    while at < len(data):
        begun = at
        try:
            (received_ns, count), at = _HEAD.unpack_from(data, at), at + _HEAD.size
            parts = []
            for _ in range(count):
                (length,), at = _LENGTH.unpack_from(data, at), at + _LENGTH.size
                if length > MOST_BYTES or at + length > len(data):
                    raise struct.error
                parts.append(data[at : at + length])
                at += length
        except struct.error:
            notes.skip(f"{where} byte {begun}", "capture is torn: the rest of the file cannot be read")
            return
        frame = frame_of(parts, received_ns // 1000)
        if frame is None:
            notes.skip(f"{where} byte {begun}", "record is not topic, sequence number, payload")
        else:
            notes.take("KV frame")
            yield frame


def frame_of(parts: list[bytes], received_us: int | None) -> Frame | None:
    """The frame in a multipart message: leading empty parts and topic, then number and payload; None if it is none."""
    if len(parts) < 2 or len(parts[-2]) != _SEQ.size:
        return None
    sane = from_unix(received_us / 1e6) if received_us is not None else None
    return Frame(_SEQ.unpack(parts[-2])[0], parts[-1], sane)


def write_capture(out: BinaryIO, parts: list[bytes], received_ns: int) -> None:
    """Append one message to a capture file."""
    out.write(_HEAD.pack(received_ns, len(parts)) + b"".join(_LENGTH.pack(len(part)) + part for part in parts))


def read_decoded(lines: Iterable[tuple[int, str]], where: str, keyed: Keyed, notes: Notes) -> Iterator[Said]:
    """Rows of a stream kept as JSON lines `{"recv_ts", "topic", "seq", "payload"}`."""
    sequence = Sequence(where, notes)
    for number, line in lines:
        place = f"{where}:{number}"
        record = _record(line)
        if record is None:
            notes.skip(place, "line is no KV event batch with seq and payload")
            continue
        notes.know("KV line", set(record), frozenset({"recv_ts", "topic", "seq", "payload"}))
        notes.take("KV line")
        rows = list(read_decoded_batch(record["payload"], place, keyed, notes))
        yield from sequence.follow(record["seq"], rows[0].t_us if rows else from_unix(record.get("recv_ts")))
        yield from rows


def _record(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or type(record.get("seq")) is not int or "payload" not in record:
        return None
    return record if 0 <= record["seq"] < 1 << 63 else None
