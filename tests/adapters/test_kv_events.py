"""KV events: both layouts of both engines, signed and unsigned hashes, gaps by number, restarts, salts."""

import json

import msgpack
import pytest
from reading import CAPTURES, KEYED

from engine.adapters.kv_events import read_batch, read_decoded_batch, signed_hash
from engine.adapters.kv_frames import Frame, frames_of, read_capture, read_decoded, read_frames
from engine.adapters.notes import Notes
from engine.adapters.observed import Observed, Unseen

AT = 1_796_000_000.5
AT_US = 1_796_000_000_500_000


def rows_of(events, notes=None):
    batch = msgpack.packb([AT, events, 0])
    return list(read_batch(batch, "here", KEYED, notes if notes is not None else Notes()))


def test_maps_and_arrays_say_the_same():
    stored_map = {
        "type": "BlockStored", "block_hashes": [5, 6], "parent_block_hash": None, "token_ids": [1, 2], "block_size": 1,
        "lora_id": None, "medium": "GPU",
    }  # fmt: skip
    stored_array = ["BlockStored", [5, 6], None, [1, 2], 1, None, "GPU"]
    notes = Notes()
    from_map, from_array = rows_of([stored_map, stored_array], notes)
    assert from_map == from_array
    assert (from_map.t_us, from_map.table, from_map.op) == (AT_US, "cache", "insert")
    assert from_map.columns["keys"] == [5, 6] and from_map.columns["tier"] == "GPU" and from_map.columns["n"] == 2
    assert not notes.unknown and not notes.skipped


def test_a_field_more_in_either_layout_is_counted_by_name_and_the_event_is_read():
    notes = Notes()
    rows = rows_of([{"type": "BlockRemoved", "block_hashes": [1], "colour": 3}, ["BlockRemoved", [1], "GPU", 9]], notes)
    assert len(rows) == 2
    assert notes.unknown == {"BlockRemoved.colour": 1, "BlockRemoved.[3]": 1}


def test_hashes_of_both_engines_meet():
    unsigned = 18_424_860_710_188_377_459
    assert signed_hash(unsigned) == signed_hash(unsigned - (1 << 64)) == unsigned - (1 << 64)
    assert signed_hash((b"\x01" * 24) + unsigned.to_bytes(8, "big")) == unsigned - (1 << 64)


def test_salts_stand_under_the_key_only_and_tokens_not_at_all():
    event = {"type": "BlockStored", "block_hashes": [1], "token_ids": [424242], "extra_keys": [["tenant-a-secret"]]}
    sglang_event = {"type": "BlockStored", "block_hashes": [1], "cache_salt": "tenant-a-secret"}
    ours, theirs = rows_of([event, sglang_event])
    assert "secret" not in repr(ours) + repr(theirs) and "424242" not in repr(ours)
    assert ours.columns["salt_fp"] and theirs.columns["salt_fp"]


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (b"\xc1", "no msgpack"),
        (msgpack.packb({"ts": 1}), "not [time, events, rank]"),
        (msgpack.packb([None, [], 0]), "without a Unix time"),
        (msgpack.packb([AT, [7], 0]), "neither a map nor an array"),
        (msgpack.packb([AT, [["BlockMelted"]], 0]), "unknown type"),
        (msgpack.packb([AT, [["BlockRemoved", "x"]], 0]), "without block_hashes"),
        (msgpack.packb([AT, [["BlockRemoved", [None]]], 0]), "neither a number nor bytes"),
    ],
)
def test_what_is_bad_is_counted_with_where_and_why(batch, why):
    notes = Notes()
    assert list(read_batch(batch, "frames.bin batch 4", KEYED, notes)) == []
    (skip,) = notes.skips
    assert skip.where.startswith("frames.bin batch 4") and why in skip.why


def frame(seq):
    return Frame(seq, msgpack.packb([AT + seq, [["BlockRemoved", [seq], "GPU"]], 0]))


def test_gaps_in_the_numbers_are_rows_that_were_not_seen():
    notes = Notes()
    rows = list(read_frames([frame(0), frame(3), frame(4)], "f", KEYED, notes))
    assert [row.rows if isinstance(row, Unseen) else row.columns["keys"] for row in rows] == [[0], 2, [3], [4]]
    assert notes.lost == ["f: batches 1 to 2 of the KV event stream are missing"]


def test_a_number_that_begins_anew_is_a_restart_whose_last_batches_are_unknown():
    notes = Notes()
    rows = list(read_frames([frame(0), frame(1), frame(0)], "f", KEYED, notes))
    assert [isinstance(row, Unseen) for row in rows] == [False, False, True, False]
    assert "began anew behind batch 1" in notes.lost[0]


def test_the_prefill_capture_lacks_its_first_seven_batches():
    notes = Notes()
    rows = list(read_capture((CAPTURES / "vllm-pd-nixl/prefill/frames.bin").read_bytes(), "frames.bin", KEYED, notes))
    assert notes.lost == ["frames.bin: batches 0 to 6 of the KV event stream are missing"]
    assert isinstance(rows[0], Unseen) and rows[0].rows == 7
    assert not notes.skipped and not notes.unknown


@pytest.mark.parametrize("folder", ["vllm-single", "vllm-pd-nixl/prefill", "vllm-pd-nixl/decode"])
def test_captured_and_decoded_streams_say_the_same(folder):
    notes = Notes()
    captured = list(read_capture((CAPTURES / folder / "frames.bin").read_bytes(), "x", KEYED, notes))
    lines = list(enumerate((CAPTURES / folder / "events.jsonl").read_text().splitlines(), 1))
    decoded = list(read_decoded(lines, "x", KEYED, notes))
    assert captured == decoded
    assert sum(isinstance(row, Observed) for row in captured) == notes.taken["KV event"] / 2 > 0
    assert not notes.skipped and not notes.unknown


def test_a_torn_capture_is_read_up_to_the_tear():
    data = (CAPTURES / "vllm-single/frames.bin").read_bytes()
    notes = Notes()
    whole = list(frames_of(data, "x", Notes()))
    torn = list(frames_of(data[:-5], "x", notes))
    assert torn == whole[:-1]
    assert "torn" in notes.skips[0].why


def test_a_decoded_batch_is_checked_as_a_packed_one_is():
    notes = Notes()
    assert list(read_decoded_batch(json.loads("[1e400, [], 0]"), "x", KEYED, notes)) == []
    assert notes.skipped == {"KV event batch without a Unix time": 1}
