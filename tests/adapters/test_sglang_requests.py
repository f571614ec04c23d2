"""Request logs in both formats and exporter files: lengths and outcomes, never a prompt."""

import json

from reading import AT_US, KEYED, UTC, said, sglang

from engine.adapters.notes import Notes
from engine.adapters.sglang_requests import read_exporter, read_json_line

META = {
    "id": "r-1", "finish_reason": {"type": "length", "length": 8}, "prompt_tokens": 40, "completion_tokens": 8,
    "cached_tokens": 32, "request_received_ts": 1789387204.5, "response_sent_to_client_ts": 1789387206.0,
}  # fmt: skip
OBJ = {"rid": "r-1", "bootstrap_room": 77, "text": "a secret prompt", "routing_key": "acme", "lora_path": "ad-1"}
TENANT = KEYED.tenant("acme")


def finished(meta=META, obj=OBJ, **more):
    return json.dumps(
        {"timestamp": "2026-09-14T12:00:06", "event": "request.finished", "rid": "r-1", "obj": obj,
         "out": {"text": "a secret answer", "meta_info": meta}, **more}
    )  # fmt: skip


def read(line):
    notes = Notes()
    rows = list(read_json_line(line, "requests.log:1", UTC, KEYED, notes))
    assert "secret" not in repr(rows)
    return rows, notes


def test_a_finished_request():
    rows, notes = read(finished())
    assert [said(row) for row in rows] == [
        ("requests", "receive", "r-1", 77, {"tenant": TENANT, "adapter": "ad-1"}),
        (
            "requests", "finish", "r-1", 77,
            {"tenant": TENANT, "adapter": "ad-1", "prompt_tokens": 40, "cached_tokens": 32, "output_tokens": 8,
             "last_token": AT_US + 1_000_000, "status": "200"},
        ),
    ]  # fmt: skip
    assert [row.t_us for row in rows] == [AT_US - 500_000, AT_US + 1_000_000]
    assert not notes.unknown and not notes.skipped


def test_a_placeholder_of_a_rejected_prompt_keeps_its_length_of_one():
    abort = {"type": "abort", "message": "Input length", "status_code": 400, "err_type": "BadRequestError"}
    rows, _ = read(finished({**META, "finish_reason": abort, "prompt_tokens": 1, "completion_tokens": 0}))
    op, columns = rows[-1].op, rows[-1].columns
    assert (op, columns["status"], columns["prompt_tokens"], columns["last_token"]) == ("abort", "400", 1, None)


def test_an_abort_without_a_status_code_has_none():
    rows, _ = read(finished({**META, "finish_reason": {"type": "abort", "message": "Aborted", "status_code": None}}))
    assert (rows[-1].op, rows[-1].columns["status"], rows[-1].columns["reason"]) == ("abort", None, "aborted")


def test_the_text_format_says_the_same():
    obj = "GenerateReqInput(rid='r-1', text='a secret prompt', bootstrap_room=77, routing_key='acme')"
    out = (
        "{'text': 'a secret answer', 'meta_info': {'id': 'r-1', 'finish_reason': {'type': 'length', 'length': 8}, "
        "'prompt_tokens': 40, 'completion_tokens': 8, 'cached_tokens': 32}}"
    )
    rows = sglang(f"Receive: obj={obj}", f"Finish: obj={obj}, out={out}")
    assert "secret" not in repr(rows)
    assert [said(row) for row in rows] == [
        ("requests", "receive", "r-1", 77, {"tenant": TENANT}),
        (
            "requests", "finish", "r-1", 77,
            {"tenant": TENANT, "prompt_tokens": 40, "cached_tokens": 32, "output_tokens": 8, "status": "200"},
        ),
    ]  # fmt: skip


def test_an_exporter_record_has_its_room_in_the_nested_string():
    notes = Notes()
    record = json.dumps({"request_parameters": json.dumps(OBJ), **META, "request_finished_ts": 1789387206.5})
    rows = list(read_exporter([(1, record), (2, "{}"), (3, record[:50])], "sglang-request-metrics.log", KEYED, notes))
    assert [said(row)[:4] for row in rows] == [("requests", "receive", "r-1", 77), ("requests", "finish", "r-1", 77)]
    assert rows[-1].t_us == AT_US + 1_500_000
    assert notes.skipped == {"line is no exporter record": 2}


def test_an_end_without_a_reason_is_an_end_all_the_same():
    notes = Notes()
    record = json.dumps({"request_parameters": json.dumps(OBJ), "request_finished_ts": 1789387206.5})
    (end,) = read_exporter([(1, record)], "x", KEYED, notes)
    assert (end.op, end.columns["status"], end.t_us) == ("finish", None, AT_US + 1_500_000)


def test_batches_unknown_events_and_unknown_fields_are_told():
    assert read(finished(obj={**OBJ, "rid": ["a", "b"]}, rid=["a", "b"]))[1].skipped == {
        "request log of a batch: one line for several requests": 1
    }
    assert (
        sum(read('{"event": "colour", "timestamp": "2026-09-14T12:00:06", "obj": {"a": 1}}')[1].skipped.values()) == 1
    )
    assert read(finished({**META, "colour": 1}))[1].unknown == {"meta_info.colour": 1}
