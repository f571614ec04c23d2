"""The audit chain: what it shows by itself, and what needs a head kept elsewhere."""

import json
import multiprocessing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbooks.audit import EMPTY, AuditLog, Head, verify_audit
from runbooks.errors import EvidenceBroken


def write(path, count=5):
    log = AuditLog(path)
    return [log.append({"t": number, "event": "x", "words": "ä" * number}) for number in range(count)]


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


def test_a_whole_chain_verifies_and_contains_each_of_its_heads(tmp_path):
    heads = write(tmp_path / "a.jsonl")
    assert verify_audit(tmp_path / "a.jsonl") == heads[-1]
    for head in (EMPTY, *heads):
        assert verify_audit(tmp_path / "a.jsonl", head) == heads[-1]
        assert Head.parse(str(head)) == head


def test_edit_delete_reorder_and_insert_are_found(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path)
    good = lines(path)
    record = json.loads(good[2])
    record["event"] = "y"
    edited = json.dumps(record, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    for spoiled, said in (
        ([*good[:2], edited, *good[3:]], ":3: was changed"),
        ([*good[:2], *good[3:]], ":3: does not follow"),
        ([good[1], good[0], *good[2:]], ":1: does not follow"),
        ([*good[:3], good[2], *good[3:]], ":4: does not follow"),
        ([*good[:2], b"{}\n", *good[3:]], ":3: is no audit record"),
        ([*good[:2], b"[]\n", *good[3:]], ":3: is no audit record"),
        ([*good[:4], good[4][:-9]], "is torn"),
    ):
        path.write_bytes(b"".join(spoiled))
        with pytest.raises(EvidenceBroken, match=said):
            verify_audit(path)


def test_a_forged_line_with_a_hash_of_its_own_breaks_the_link_to_the_next(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path)
    good = lines(path)
    path.write_bytes(b"".join(good[:2]))
    AuditLog(path).append({"event": "forged"})
    path.write_bytes(path.read_bytes() + b"".join(good[3:]))
    with pytest.raises(EvidenceBroken, match=":4: does not follow"):
        verify_audit(path)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_changed_byte_is_found(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("audit") / "a.jsonl"
    head = write(path, 3)[-1]
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        found = verify_audit(path, head)
    except EvidenceBroken:
        return
    # JSON that reads the same is the same record; anything else must have been refused.
    assert found == head and [json.loads(line) for line in lines(path)]


def test_truncation_and_rewriting_need_a_head_kept_elsewhere(tmp_path):
    path = tmp_path / "a.jsonl"
    head = write(path)[-1]
    path.write_bytes(b"".join(lines(path)[:3]))
    assert verify_audit(path).count == 3
    with pytest.raises(EvidenceBroken, match="was cut or rewritten"):
        verify_audit(path, head)
    path.unlink()
    AuditLog(path).append({"event": "forged"})
    with pytest.raises(EvidenceBroken, match="was cut or rewritten"):
        verify_audit(path, head)


def test_a_spoiled_last_line_stops_appending(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path)
    good = path.read_bytes()
    path.write_bytes(good.replace(b'"t":4', b'"t":5'))
    with pytest.raises(EvidenceBroken, match="the last line was changed"):
        AuditLog(path).append({"event": "x"})
    path.write_bytes(good[:-1])
    with pytest.raises(EvidenceBroken, match="torn"):
        AuditLog(path).append({"event": "x"})
    assert path.read_bytes() == good[:-1]


def test_long_lines_are_found_from_the_tail(tmp_path):
    path = tmp_path / "a.jsonl"
    log = AuditLog(path)
    log.append({"event": "x"})
    log.append({"event": "y" * 300_000})
    assert log.append({"event": "z"}) == verify_audit(path)


def test_a_missing_log_is_broken_evidence(tmp_path):
    with pytest.raises(EvidenceBroken, match="cannot be read"):
        verify_audit(tmp_path / "none.jsonl")


def _append_many(path, count):
    for number in range(count):
        AuditLog(path).append({"event": number})


def test_processes_append_side_by_side(tmp_path):
    path = tmp_path / "a.jsonl"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_append_many, args=(path, 40)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert verify_audit(path).count == 120
