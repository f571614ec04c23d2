"""The SGLang recorder against stand-ins: the incident as two processes live it, and that the engine is never harmed."""

import itertools
import json
import logging
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from sglang_stand_in import FAILED, SUCCESS, Reason, StandIn, pages

from engine.adapters.attaching import attach
from engine.adapters.recorder_settings import Settings
from engine.adapters.sglang_hooks import HOOKS
from engine.adapters.sglang_plugin import ranks_of, register
from engine.adapters.sglang_recorder import SglangRecorder
from engine.ledger.reader import read_ledger
from forensics.cli import cli
from forensics.foreign_reads import foreign_reads

START_US = 1_789_387_200_000_000
TICKS = itertools.count(START_US, 1000)


class Process:
    """A stand-in with its recorder attached."""

    def __init__(self, ledger, mode, pool=640, without=()):
        self.engine = StandIn(without)
        ordinal = 1 if mode == "prefill" else 11
        self.recorder = SglangRecorder(Settings(ledger, "site", ordinal, b"k" * 32), ranks_of, lambda: next(TICKS))
        self.attached = attach(HOOKS, self.recorder, self.engine.resolve, self.engine.place)
        self.recorder.attached(self.attached.missing)
        self.scheduler = self.engine.Scheduler({"mode": mode, "pool": pool}, None)

    def request(self, rid, room, tokens):
        return self.engine.Req(rid, room, tokens)


def rows(ledger, table, worker=None):
    found = [
        row for row in ledger.tables[table].to_pylist() if worker is None or row["worker"].startswith(f"site-{worker}")
    ]
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def play_prefill(process, rid, room, tokens, source, *, refuse=False):
    engine, req = process.engine, process.request(rid, room, tokens)
    if refuse:
        req.set_finish_with_abort("Input length exceeds", status_code=400)
    engine.PrefillBootstrapQueue().add(req, 8)
    process.scheduler.run_batch([req])
    engine.MooncakeKVManager().add_transfer_request(room, pages(*source), slice(0, len(source)), True, aux_index=0)
    assert engine.CommonKVManager().conclude_transfer(bootstrap_room=room, status=SUCCESS) == SUCCESS
    req.finished_reason = req.finished_reason or Reason(type="length", length=1)
    engine.SchedulerOutputStreamer().stream_output([req], False)


def play_decode(process, rid, room, tokens, destination, output=5):
    engine, req = process.engine, process.request(rid, room, tokens)
    entry = SimpleNamespace(req=req)
    engine.DecodePreallocQueue().add(req)
    engine.MooncakeKVReceiver(room).send_metadata(pages(*destination), aux_index=0)
    engine.DecodeTransferQueue()._commit_transfer_to_req(entry)
    process.scheduler.run_batch([req])
    req.output_ids, req.finished_reason = [1] * output, Reason(type="stop")
    engine.SchedulerOutputStreamer().stream_output([req], False)
    engine.release_kv_cache(req, None, checkpoint=False)


@pytest.fixture
def incident(tmp_path):
    """Prefill refuses `short`, works on one token and moves one page; decode had asked for eleven."""
    prefill, decode = Process(tmp_path, "prefill"), Process(tmp_path, "decode", pool=2048)
    play_prefill(prefill, "whole", 1, 200, [1, 2, 3, 4])
    play_decode(decode, "whole", 1, 200, [5, 6, 7, 8])
    play_prefill(prefill, "short", 2, 700, [9], refuse=True)
    play_decode(decode, "short", 2, 700, range(10, 21))
    prefill.recorder.close()
    decode.recorder.close()
    return read_ledger(tmp_path)


def test_every_hook_of_the_backend_in_use_is_in_place(tmp_path):
    attached = Process(tmp_path, "prefill").attached
    assert {hook.backend for hook in attached.missing} == {"nixl"}
    assert len(attached.hooks) == len(HOOKS) - 2


def test_both_sides_of_the_incident_stand_in_the_ledger(incident):
    assert not incident.problems
    start, config = rows(incident, "workers", "prefill")[:2]
    assert (start["worker"], start["role"], start["tp_rank"], start["ordinal"]) == (
        "site-prefill-dp0-pp0-tp1",
        "prefill",
        1,
        2,
    )
    assert (config["pool_pages"], config["page_tokens"], config["prompt_limit_tokens"]) == (10, 64, 633)
    short = [row for row in rows(incident, "requests", "prefill") if row["req"] == 2]
    assert [(row["op"], row.get("prompt_tokens"), row.get("status")) for row in short] == [
        ("receive", None, None), ("reject", 700, "400"), ("abort", 1, "400"),
    ]  # fmt: skip
    grant = rows(incident, "transfers", "decode")[-1]
    assert (grant["op"], grant["room"], grant["n"], grant["asked"], len(grant["dst_pages"])) == ("grant", 2, 11, 11, 11)
    assert [(row["op"], row["room"], row["n"]) for row in rows(incident, "transfers", "prefill")] == [
        ("post", 1, 4), ("done", 1, 4), ("post", 2, 1), ("done", 2, 1),
    ]  # fmt: skip
    commit = [row for row in rows(incident, "requests", "decode") if row["op"] == "commit"]
    assert [row["covered_tokens"] for row in commit] == [200, 700]
    assert [row["op"] for row in rows(incident, "pages", "decode")] == ["reserve", "unbind"] * 2


def test_content_was_not_witnessed_so_no_verdict_is_clean_and_nobody_is_accused(incident):
    counts = {
        verdict.value: number for verdict, number in foreign_reads(incident, engine="both").counts.items() if number
    }
    assert counts == {"unknown": 2}


def test_the_counts_bound_it_to_the_page(incident):
    found = json.loads(CliRunner().invoke(cli, ["bound", "--ledger", str(incident.path), "--format", "json"]).stdout)
    (row,) = found["rows"]
    assert (row["rid"], row["bound"], row["unfilled_pages"]) == ("short", "unfilled", 10)
    assert row["rules"] == "over-limit placeholder short-transfer"


@pytest.mark.parametrize(("destination", "least"), [(range(7, 18), 1), ([5, *range(9, 19)], 0)])
def test_pages_that_another_request_had_filled_bound_it_from_below(tmp_path, destination, least):
    """Of `whole`, pages 5 to 8 were filled; `short` was let have some of them, or only in the place that was filled anew."""
    prefill, decode = Process(tmp_path, "prefill"), Process(tmp_path, "decode", pool=2048)
    play_prefill(prefill, "whole", 1, 200, [1, 2, 3, 4])
    play_decode(decode, "whole", 1, 200, [5, 6, 7, 8])
    play_prefill(prefill, "short", 2, 700, [9], refuse=True)
    play_decode(decode, "short", 2, 700, destination)
    prefill.recorder.close()
    decode.recorder.close()
    found = json.loads(CliRunner().invoke(cli, ["bound", "--ledger", str(tmp_path), "--format", "json"]).stdout)
    assert [found["bound"][name] for name in ("least", "unfilled", "most")] == [least, 1, 1]


def test_a_retry_may_read_what_its_own_earlier_try_had_put_there(tmp_path):
    prefill, decode = Process(tmp_path, "prefill"), Process(tmp_path, "decode", pool=2048)
    play_prefill(prefill, "again", 1, 200, [1, 2, 3, 4])
    play_decode(decode, "again", 1, 200, [5, 6, 7, 8])
    play_prefill(prefill, "again", 2, 700, [9], refuse=True)
    play_decode(decode, "again", 2, 700, range(5, 16))
    prefill.recorder.close()
    decode.recorder.close()
    found = json.loads(CliRunner().invoke(cli, ["bound", "--ledger", str(tmp_path), "--format", "json"]).stdout)
    assert found["bound"]["least"] == 0


def test_holds_end_by_a_word_or_by_a_timer(tmp_path):
    decode = Process(tmp_path, "decode")
    engine = decode.engine
    for room in (1, 2, 3):
        req = decode.request(f"r-{room}", room, 100)
        engine.DecodePreallocQueue().add(req)
        engine.MooncakeKVReceiver(room).send_metadata(pages(room, room + 10))
        engine.CommonKVReceiver(room)._send_abort_notification(force_arm=True)
        writers = SimpleNamespace(bootstrap_infos=["rank 0", "rank 1"] if room == 3 else ["rank 0"])
        entry = SimpleNamespace(req=req, kv_receiver=writers)
        engine.DecodeTransferQueue()._defer_release(entry)
        if room != 2:  # of the third only one rank of two
            engine.CommonKVManager().note_abort_ack(room, 0, 3)
        engine.DecodeTransferQueue()._do_release(entry, 0)
    decode.recorder.close()
    ledger = read_ledger(tmp_path)
    assert [(row["op"], row["room"]) for row in rows(ledger, "transfers")] == [
        ("grant", 1), ("abort", 1), ("ack", 1), ("grant", 2), ("abort", 2), ("expire", 2), ("grant", 3),
        ("abort", 3), ("ack", 3), ("expire", 3),
    ]  # fmt: skip
    assert [row["op"] for row in rows(ledger, "pages")] == ["reserve", "hold"] * 3


def test_a_failed_transfer_and_a_failed_checksum(tmp_path):
    prefill = Process(tmp_path, "prefill")
    req = prefill.request("r", 5, 64)
    prefill.engine.PrefillBootstrapQueue().add(req, 8)
    prefill.engine.MooncakeKVManager().add_transfer_request(5, pages(1), slice(0, 1), True)
    for _ in range(2):  # it may run more than once for a room
        prefill.engine.CommonKVManager().conclude_transfer(bootstrap_room=5, status=FAILED)
    prefill.engine.SchedulerDisaggregationDecodeMixin()._handle_kv_checksum_mismatch(req, "mismatch")
    prefill.recorder.close()
    ledger = read_ledger(tmp_path)
    assert [row["op"] for row in rows(ledger, "transfers")] == ["post", "fail"]
    assert [row["detector"] for row in rows(ledger, "checks") if row["op"] == "mismatch"] == ["kv-checksum"]


def test_a_hook_that_does_not_fit_is_told_and_its_rows_are_missing(tmp_path, caplog):
    prefill = Process(tmp_path, "prefill", without=("add_transfer_request", "_handle_kv_checksum_mismatch"))
    play_prefill(prefill, "r", 1, 100, [1, 2])
    prefill.recorder.close()
    ledger = read_ledger(tmp_path)
    told = {row["detector"]: row["action"] for row in rows(ledger, "checks") if row["op"] == "skipped"}
    assert set(told) == {
        "hook disaggregation.mooncake.conn.MooncakeKVManager.add_transfer_request",
        "hook disaggregation.decode.SchedulerDisaggregationDecodeMixin._handle_kv_checksum_mismatch",
    }
    assert all("not in this version" in why for why in told.values())
    assert not rows(ledger, "transfers")
    whole = [gap for gap in ledger.gaps if gap.table == "transfers"]
    assert whole and whole[0].after_seq == 0 and whole[0].before_seq > rows(ledger, "requests")[-1]["seq"]
    assert "no hook at" in caplog.text


def test_a_function_with_other_parameters_is_not_hooked(tmp_path):
    engine = StandIn()

    class Other:
        def conclude_transfer(self, room, status):
            return status

    engine.parts["CommonKVManager"] = Other
    recorder = SglangRecorder(Settings(tmp_path, "", 0, b""), ranks_of)
    missing = {hook.path: why for hook, why in attach(HOOKS, recorder, engine.resolve, engine.place).missing.items()}
    assert (
        missing["disaggregation.common.conn.CommonKVManager.conclude_transfer"]
        == "takes no bootstrap_room in this version"
    )
    assert Other().conclude_transfer(1, SUCCESS) == SUCCESS


def test_a_handler_that_fails_harms_nobody_and_leaves_a_gap(tmp_path, caplog):
    decode = Process(tmp_path, "decode")
    req = decode.request("r", 1, 64)
    decode.engine.DecodePreallocQueue().add(req)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            decode.engine.MooncakeKVReceiver(1).send_metadata("a tensor on the device")
        decode.engine.DecodePreallocQueue().add(object())
    assert decode.recorder.failures == 6
    assert caplog.text.count("granted at") == 3  # said three times, counted always
    decode.engine.MooncakeKVReceiver(1).send_metadata(pages(1))
    decode.recorder.close()
    ledger = read_ledger(tmp_path)
    grant = rows(ledger, "transfers")[0]
    gap = next(gap for gap in ledger.gaps if gap.table == "transfers" and gap.before_seq == grant["seq"])
    assert gap.before_seq - gap.after_seq >= 5


def test_processes_without_a_scheduler_and_engines_without_the_setting_write_nothing(tmp_path, monkeypatch, caplog):
    engine = StandIn()
    recorder = SglangRecorder(Settings(tmp_path / "ledger", "", 0, b""), ranks_of)
    attach(HOOKS, recorder, engine.resolve, engine.place)
    req = engine.Req("r", 1, 10)
    engine.DecodePreallocQueue().add(req)
    engine.SchedulerOutputStreamer().stream_output([req], False)
    recorder.close()
    assert not (tmp_path / "ledger").exists()
    caplog.clear()
    monkeypatch.delenv("KVW_LEDGER", raising=False)
    register()
    assert "KV Witness" not in caplog.text
    monkeypatch.setenv("KVW_LEDGER", str(tmp_path / "ledger"))
    register()  # there is no SGLang here
    assert "nothing is recorded" in caplog.text and not (tmp_path / "ledger").exists()


@pytest.mark.parametrize("setting", [{"KVW_ORDINAL": "x"}, {"KVW_ORDINAL": "8192"}])
def test_settings_that_cannot_be_used_say_what_to_do(setting):
    with pytest.raises(ValueError, match="give a number below 8192"):
        Settings.from_environment({"KVW_LEDGER": "/ledger", **setting})


def test_a_page_list_is_copied_before_the_engine_reuses_it(tmp_path):
    prefill = Process(tmp_path, "prefill")
    reused = np.array([1, 2], np.int32)
    prefill.engine.PrefillBootstrapQueue().add(prefill.request("r", 1, 100), 8)
    prefill.engine.MooncakeKVManager().add_transfer_request(1, reused, slice(0, 2), True)
    reused[:] = 9
    prefill.recorder.close()
    assert rows(read_ledger(tmp_path), "transfers")[0]["src_pages"] == [1, 2]
