"""A thousand mutated lines and frames and more: no crash, and each one that is not taken is counted and shown."""

import io
import json
import pickle
import random

import msgpack
import pytest
from reading import CAPTURES, KEYED, UTC
from test_sglang_log import CASES as SGLANG
from test_sglang_requests import finished
from test_vllm_log import CASES as VLLM

from engine.adapters.crash_dump import read_dump
from engine.adapters.folder import Kind, kind_of
from engine.adapters.folder_reading import Reading, read_folder
from engine.adapters.ingest import ingest_folder
from engine.adapters.kv_frames import Frame, read_capture, read_decoded, read_frames
from engine.adapters.notes import Notes
from engine.adapters.observed import Observed
from engine.adapters.prometheus import read_scrape
from engine.adapters.sglang_log import read_sglang_log
from engine.adapters.sglang_requests import read_exporter
from engine.adapters.vllm_log import read_vllm_log
from engine.ledger.reader import read_ledger

SEED, MUTANTS = 20260914, 1000


def mutated(data: bytes, draw: random.Random) -> bytes:
    """One to four bytes changed, cut out, doubled or put in."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(changed) + 1)
        kind = draw.randrange(4)
        if kind == 0:
            changed[at : at + 1] = bytes([draw.randrange(256)])
        elif kind == 1:
            del changed[at : at + draw.randint(1, 8)]
        elif kind == 2:
            changed[at:at] = changed[at : at + draw.randint(1, 16)]
        else:
            changed[at:at] = draw.choice([b"\x00", b"999999999999999999999", b"{", b"'", b"\xff\xfe", b"NaN", b"-1"])
    return bytes(changed)


def lines(data: list[bytes]) -> list[tuple[int, str]]:
    """As a file of such lines is read: what is no UTF-8 is replaced, and a line may break in two."""
    text = b"\n".join(data).decode(errors="replace")
    return [
        (number, line.rstrip("\r")) for number, line in enumerate(io.StringIO(text, newline="\n").read().split("\n"), 1)
    ]


def told(notes: Notes) -> int:
    """Lines that were counted in any way."""
    return sum(notes.taken.values()) + sum(notes.skipped.values()) + sum(notes.unread.values())


LOGS = {
    "sglang": (
        [f"[2026-09-14 12:00:05 TP0] {message}".encode() for message, _ in SGLANG]
        + [f"[2026-09-14 12:00:05] {finished()}".encode()],
        lambda given, notes: read_sglang_log(given, "f", UTC, KEYED, notes),
    ),
    "vllm": (
        [f"(EngineCore pid=7) INFO 09-14 12:00:05 [core.py:1] {message}".encode() for message, _ in VLLM],
        lambda given, notes: read_vllm_log(given, "f", UTC, 2026, notes),
    ),
    "exporter": (
        [json.dumps({"request_parameters": json.dumps({"rid": "r"}), "request_finished_ts": 1789387206.5}).encode()],
        lambda given, notes: read_exporter(given, "f", KEYED, notes),
    ),
    "scrape": (
        [line.encode() for line in (CAPTURES / "vllm-single/metrics.txt").read_text().splitlines() if line[:1] != "#"],
        lambda given, notes: read_scrape(given, "f", None, notes),
    ),
    "decoded KV events": (
        (CAPTURES / "vllm-pd-nixl/decode/events.jsonl").read_bytes().splitlines(),
        lambda given, notes: read_decoded(given, "f", KEYED, notes),
    ),
}


@pytest.mark.parametrize("kind", LOGS)
def test_mutated_lines_are_taken_or_told(kind):
    originals, read = LOGS[kind]
    draw = random.Random(f"{SEED} {kind}")
    given = lines([mutated(draw.choice(originals), draw) for _ in range(MUTANTS)])
    notes = Notes()
    rows = list(read(given, notes))
    assert all(row.t_us is None or -(1 << 62) < row.t_us < 1 << 62 for row in rows if isinstance(row, Observed))
    filled = sum(1 for _, line in given if line.strip() and not line.startswith("#"))
    assert told(notes) >= filled  # a taken line may count its events, too
    assert all(skip.where.startswith("f") and skip.why for skip in notes.skips)


STORED = {
    "type": "BlockStored", "block_hashes": [1, (1 << 64) - 2], "parent_block_hash": b"\x07" * 32, "token_ids": [5, 6],
    "block_size": 1, "lora_id": None, "medium": "GPU", "lora_name": None, "extra_keys": [["salt"], None],
}  # fmt: skip
EVENTS = {
    "maps, as vLLM and SGLang send them": [
        STORED, {"type": "BlockStored", "block_hashes": [-3], "medium": "GPU", "cache_salt": "salt", "session_id": "s"},
        {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"}, {"type": "AllBlocksCleared"},
    ],
    "arrays, as older releases send them": [
        ["BlockStored", *list(STORED.values())[1:]], ["BlockRemoved", [-1, b"\x01" * 32], "GPU"], ["AllBlocksCleared"],
    ],
}  # fmt: skip


@pytest.mark.parametrize("layout", EVENTS)
def test_mutated_frames_are_taken_or_told(layout):
    batch = msgpack.packb([1_796_000_000.0, EVENTS[layout], 0])
    draw = random.Random(f"{SEED} {layout}")
    assert len(list(read_frames([Frame(0, batch)], "f", KEYED, Notes()))) == len(EVENTS[layout])
    for seq in range(MUTANTS):
        notes = Notes()
        rows = [
            row
            for row in read_frames([Frame(seq, mutated(batch, draw))], "f", KEYED, notes)
            if isinstance(row, Observed)
        ]
        assert len(rows) == notes.taken["KV event"]
        assert rows or notes.skips or msgpack_says_no_events(notes)


def msgpack_says_no_events(notes: Notes) -> bool:
    """A length that became 0 leaves a batch with nothing in it."""
    return not notes.skipped


def test_mutated_captures_and_dumps_never_crash():
    capture = (CAPTURES / "vllm-pd-nixl/decode/frames.bin").read_bytes()
    dump = pickle.dumps({"requests": [({"rid": "r"}, {"meta_info": {}}, 1789387204.0, 1789387205.0)]})
    draw = random.Random(SEED)
    for _ in range(MUTANTS):
        notes = Notes()
        rows = list(read_capture(mutated(capture, draw), "f", KEYED, notes))
        assert rows or notes.skips
        notes = Notes()
        list(read_dump(mutated(dump, draw), "f", KEYED, notes))
        assert told(notes)


DOCUMENTS = {
    "server info": (
        Kind.SERVER_INFO,
        {"disaggregation_mode": "prefill", "page_size": 64, "context_length": 4096, "max_total_num_tokens": 640, "max_req_input_len": 634},
    ),
    "loads": (
        Kind.LOADS,
        {"timestamp": 1789387204.5, "loads": [{"num_running_reqs": 3, "num_used_tokens": 130, "max_total_num_tokens": 640},
                                              {"dp_rank": 1, "queues": {"waiting": 2}, "disaggregation": {"mode": "prefill"}}]},
    ),
    "transcript": (Kind.TRANSCRIPT, json.loads((CAPTURES / "vllm-pd-nixl/requests.json").read_text())[:4]),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_mutated_documents_are_taken_or_told(name, tmp_path):
    kind, record = DOCUMENTS[name]
    original, path = json.dumps(record).encode(), tmp_path / "worker" / "a.json"
    path.parent.mkdir()
    path.write_bytes(original)
    assert kind_of(path) is kind
    draw = random.Random(f"{SEED} {name}")
    for _ in range(MUTANTS):
        path.write_bytes(mutated(original, draw))
        notes = Notes()
        read_folder(tmp_path, Reading(UTC, 2026, KEYED), notes)
        assert told(notes), path.read_bytes()
        assert all(skip.where.startswith("worker/a.json") and skip.why for skip in notes.skips)


def test_a_folder_of_mutants_becomes_a_ledger_that_holds(tmp_path):
    draw = random.Random(SEED)
    for kind, (originals, _) in LOGS.items():
        folder = tmp_path / "logs" / kind.replace(" ", "-")
        folder.mkdir(parents=True)
        mutants = [mutated(draw.choice(originals), draw) for _ in range(200)]
        (folder / "a.log").write_bytes(b"\n".join([*originals, *mutants]))
    done = ingest_folder(tmp_path / "logs", tmp_path / "ledger", key=b"k" * 32, year=2026)
    ledger = read_ledger(tmp_path / "ledger")
    assert not ledger.problems and done.notes.skipped and done.notes.skips
    assert {worker.worker for worker in ledger.writers} == {"decoded-KV-events", "exporter", "sglang", "vllm"}
