"""Scrapes, /server_info, /v1/loads and transcripts."""

import json

import pytest
from reading import AT_US, CAPTURES, said

from engine.adapters.metric_names import family
from engine.adapters.notes import Notes
from engine.adapters.prometheus import read_scrape
from engine.adapters.server_info import read_loads, read_server_info
from engine.adapters.times import in_file_name
from engine.adapters.transcript import read_transcript

SCRAPE = """\
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{engine_type="prefill",model_name="m",tp_rank="0"} 681280.0
sglang:page_size{engine_type="prefill",model_name="m",tp_rank="0"} 64.0
sglang:context_len{engine_type="prefill"} 1.048576e+06
sglang:num_running_reqs{engine_type="prefill"} 3.0
sglang:num_queue_reqs{engine_type="prefill"} 2.0
sglang:num_used_tokens{engine_type="prefill"} 130.0
sglang:kv_transfer_total_mb_bucket{engine_type="prefill",le="10.0"} 4.0
sglang:colour{engine_type="prefill"} 1.0
process_open_fds 12.0
no sample at all
"""


def scrape(text):
    notes = Notes()
    return [said(row) for row in read_scrape(enumerate(text.splitlines(), 1), "m.txt", AT_US, notes)], notes


def test_a_scrape_of_sglang():
    rows, notes = scrape(SCRAPE)
    assert rows == [
        ("identity", {"role": "prefill"}),
        ("workers", "config", None, None, {"pool_tokens": 681280, "page_tokens": 64, "context_tokens": 1048576}),
        ("gauges", "sample", None, None, {"pool": "kv", "running": 3, "waiting": 2, "used_tokens": 130}),
    ]
    assert notes.unknown == {"metrics.sglang:colour": 1}
    assert [skip.where for skip in notes.skips] == ["m.txt:11"]


@pytest.mark.parametrize("path", sorted(CAPTURES.rglob("metrics.txt")), ids=lambda path: path.parent.name)
def test_captured_scrapes_hold_no_unknown_name(path):
    rows, notes = scrape(path.read_text())
    assert not notes.unknown and not notes.skipped
    assert rows[0][-1]["pool_pages"] == 24 and rows[0][-1]["page_tokens"] == 32


def test_a_familys_endings_are_the_formats():
    assert family("sglang:kv_transfer_total_mb_bucket") == "sglang:kv_transfer_total_mb"
    assert family("vllm:num_preemptions_created") == "vllm:num_preemptions"
    assert family("sglang:colour_total") == "sglang:colour"


def test_server_info_gives_role_limits_and_checks():
    info = {
        "disaggregation_mode": "prefill", "page_size": 64, "context_length": None, "max_total_num_tokens": 681280,
        "max_req_input_len": 681274, "version": "0.5.23", "kv_canary": "log", "disaggregation_enable_kv_checksum": True,
        "launch_command": "x",
    }  # fmt: skip
    notes = Notes()
    assert [said(row) for row in read_server_info(info, notes)] == [
        ("identity", {"engine": "sglang", "role": "prefill", "version": "0.5.23"}),
        (
            "workers", "config", None, None,
            {"pool_tokens": 681280, "page_tokens": 64, "prompt_limit_tokens": 681273,
             "defences": ["kv-checksum=enforce", "kv-canary=log"]},
        ),
    ]  # fmt: skip
    assert notes.unread == {"fields of /server_info": 1}


def test_loads_have_a_time_and_unknown_fields_are_counted():
    notes = Notes()
    load = {"timestamp": 1789387205, "num_running_reqs": 1, "num_waiting_reqs": 2, "num_used_tokens": 64, "colour": 1}
    rows = list(read_loads({"timestamp": None, "loads": [load, 3]}, "loads.json", notes))
    assert [(row.t_us, said(row)[-1]) for row in rows] == [
        (AT_US, {"pool": "kv", "running": 1, "waiting": 2, "used_tokens": 64})
    ]
    assert notes.unknown == {"load.colour": 1} and notes.skips[0].where == "loads.json load 1"


def test_a_transcript_keeps_prefills_blocks_and_no_text():
    path = CAPTURES / "vllm-pd-nixl/requests.json"
    notes = Notes()
    rows = list(read_transcript(path.read_text(), "requests.json", notes))
    assert not notes.unknown and not notes.skipped and notes.taken["call"] == 11
    grants = {row.rid: row.columns["src_pages"] for row in rows if row.op == "grant"}
    assert grants["cmpl-ok-0"] == [15, 16, 17, 18, 19, 20, 1]
    covered = [row.columns for row in rows if row.rid == "cmpl-wrong-owner-0" and "covered_tokens" in row.columns]
    assert covered == [{"prompt_tokens": 200, "covered_tokens": 400}]
    assert json.loads(path.read_text())[1]["resp"]["choices"][0]["text"] not in repr(rows)


@pytest.mark.parametrize(
    ("name", "t_us"),
    [
        ("metrics@2026-09-14T12:00:05Z.txt", AT_US), ("m@2026-09-14T120005Z.txt", AT_US),
        ("m@2026-09-14T14-00-05+0200.txt", AT_US), ("metrics.txt", None), ("m@2026-99-14T12:00:05Z.txt", None),
    ],
)  # fmt: skip
def test_the_time_of_a_scrape_stands_in_its_files_name(name, t_us):
    assert in_file_name(name) == t_us
