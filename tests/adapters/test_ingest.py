"""A folder into a ledger: what is there, what is missing, and that no verdict but `unknown` rests on it."""

import json
import shutil

import pytest
from click.testing import CliRunner
from reading import CAPTURES

from engine.adapters.ingest import ingest_folder
from engine.adapters.notes import Notes
from engine.adapters.observed import Observed
from engine.adapters.request_lives import join_lives
from engine.ledger.errors import LedgerError
from engine.ledger.reader import read_ledger
from forensics import ingest as ingest_command
from forensics.cli import cli
from forensics.foreign_reads import foreign_reads

KEY = b"k" * 32
SERVER = (
    "[2026-09-14 12:00:01 TP0] max_total_num_tokens=640, chunked_prefill_size=64, max_prefill_tokens=64, "
    "max_running_requests=8, context_len=4096, available_gpu_mem=1.00 GB\n"
    "[2026-09-14 12:00:05 TP0] Input length (700 tokens) exceeds the maximum allowed length (634 tokens). Use a shorter "
    "input., self.rid='p-1'\n"
    "[2026-09-14 12:00:05 TP0] ReqTimeStats(rid=p-1, bootstrap_room=77, input_len=1, cached_input_len=0, output_len=1, "
    "attempts=0, type=prefill): bootstrap_duration=1.00ms, queue_duration=0.10ms, forward_duration=6.00ms, "
    "entry_time=1789387204.250, transfer_speed=20.00 GB/s, transfer_total=4.00 MB\n"
    "[2026-09-14 12:00:06 TP0] Deferred KV release for room 78 timed out after 30.0s without a full drain ack from "
    "prefill; releasing anyway.\n"
    "nothing of the kind\n"
)


def rows(ledger, table):
    found = ledger.tables[table].to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def ingested(folder, tmp_path, **options):
    done = ingest_folder(folder, tmp_path / "ledger", key=KEY, **options)
    return done, read_ledger(tmp_path / "ledger")


@pytest.mark.parametrize("name", ["vllm-single", "vllm-pd-nixl"])
def test_every_capture_reads_without_an_unknown_field(name, tmp_path):
    done, ledger = ingested(CAPTURES / name, tmp_path)
    assert not done.notes.unknown and not done.notes.skipped
    assert not ledger.problems and all(writer.state == "sealed" for writer in ledger.writers)
    assert rows(ledger, "requests") and rows(ledger, "cache")


def test_the_log_of_an_engine_that_died_of_a_placeholder_tells_its_death(tmp_path):
    done, ledger = ingested(CAPTURES / "vllm-crash", tmp_path, year=2026)
    assert not done.notes.unknown and not done.notes.skipped and not ledger.problems
    assert [(row["detector"], row["n"]) for row in rows(ledger, "checks")] == [("engine", 1)]
    asked = {row["rid"]: row["req"] for row in rows(ledger, "requests") if row["op"] == "receive"}
    ended = [(row["req"], row["op"], row["reason"]) for row in rows(ledger, "requests") if row["op"] != "receive"]
    assert ended == [(asked["cmpl-pd-stub-0"], "abort", "engine dead")]
    config = rows(ledger, "workers")[1]
    assert (config["pool_pages"], config["page_tokens"], config["context_tokens"]) == (24, 32, 512)


def test_the_missing_first_seven_batches_are_a_gap_of_the_ledger(tmp_path):
    done, ledger = ingested(CAPTURES / "vllm-pd-nixl", tmp_path)
    assert "prefill/frames.bin: batches 0 to 6 of the KV event stream are missing" in done.notes.lost
    first = rows(ledger, "cache")[0]
    gap = next(gap for gap in ledger.gaps if gap.table == "cache" and gap.worker == first["worker"] and gap.after_seq)
    prefill = [gap for gap in ledger.gaps if gap.worker == "prefill" and gap.table == "cache"]
    before = min(row["seq"] for row in rows(ledger, "cache") if row["worker"] == "prefill")
    assert any(gap.before_seq == before and gap.before_seq - gap.after_seq >= 8 for gap in prefill)
    assert gap.reason == "missing rows"


@pytest.mark.parametrize("name", ["vllm-single", "vllm-pd-nixl"])
def test_every_response_of_a_capture_is_unknown(name, tmp_path):
    _, ledger = ingested(CAPTURES / name, tmp_path)
    counts = {
        verdict.value: number for verdict, number in foreign_reads(ledger, engine="both").counts.items() if number
    }
    assert set(counts) == {"unknown"} and counts["unknown"] > 10


def test_no_text_no_tokens_no_salts_stand_in_a_ledger(tmp_path):
    ingested(CAPTURES / "vllm-single", tmp_path)
    stored = b"".join(path.read_bytes() for path in (tmp_path / "ledger").rglob("*") if path.is_file())
    assert b"tenant-a-secret" not in stored and b"prompt_token_ids" not in stored


@pytest.fixture
def logs(tmp_path):
    folder = tmp_path / "logs" / "prefill-0"
    folder.mkdir(parents=True)
    (folder / "server.log").write_text(SERVER)
    return folder.parent


def test_an_incident_in_the_log_stands_in_the_ledger(logs, tmp_path):
    _, ledger = ingested(logs, tmp_path)
    start, config = rows(ledger, "workers")[:2]
    assert (start["role"], start["build"]) == ("prefill", "ingested")
    assert (config["context_tokens"], config["prompt_limit_tokens"]) == (4096, 633)
    receive, reject, finish = rows(ledger, "requests")
    assert (receive["rid"], receive["room"], receive["prompt_tokens"]) == ("p-1", 77, 1)
    assert (reject["op"], reject["prompt_tokens"], reject["limit_tokens"]) == ("reject", 700, 633)
    assert (finish["op"], finish["prompt_tokens"]) == ("finish", 1)
    assert {receive["req"], reject["req"], finish["req"]} == {1}
    assert [(row["op"], row["room"]) for row in rows(ledger, "transfers")] == [("done", 77), ("expire", 78)]


def test_the_same_folder_gives_the_same_rows(logs, tmp_path):
    first = ingest_folder(logs, tmp_path / "a", key=KEY)
    second = ingest_folder(logs, tmp_path / "b", key=KEY)
    assert first.rows == second.rows
    one, other = read_ledger(tmp_path / "a"), read_ledger(tmp_path / "b")
    assert one.manifest_roots == other.manifest_roots


def test_a_page_size_turns_slots_and_tokens_into_pages(logs, tmp_path):
    (logs / "prefill-0/metrics.txt").write_text("sglang:page_size 64.0\nsglang:num_used_tokens 130.0\n")
    canary = (
        "[2026-09-14 12:00:07 TP0] kv_canary violation: launch_tag=HEAD_K_FULL fail_reason=verify_token slot_idx=130 "
        "position=2 stored_token=11 expected_token=12 stored_chain_hash=0x0123456789abcdef expected_aux=0x0123456789abcdef"
    )
    (logs / "prefill-0/canary.log").write_text(canary + "\n")
    _, ledger = ingested(logs, tmp_path)
    assert rows(ledger, "workers")[1]["pool_pages"] == 10
    assert rows(ledger, "checks")[0]["page"] == 2
    assert rows(ledger, "gauges")[-1]["used"] == 3


def test_lives_of_one_rid_are_joined_and_told_apart():
    def at(seconds, op, **columns):
        return Observed(1_789_387_200_000_000 + round(seconds * 1e6), "requests", op, columns, "r")

    told = [
        at(0.5, "receive"), at(0.6, "receive", prompt_tokens=9), at(2, "finish", output_tokens=3),
        at(2.4, "finish", status="200"), at(10, "receive"), at(11, "abort", reason="aborted"),
    ]  # fmt: skip
    lives = list(join_lives(told, Notes()))
    assert [(row.op, dict(row.columns)) for row in lives] == [
        ("receive", {"prompt_tokens": 9}), ("finish", {"output_tokens": 3, "status": "200"}),
        ("receive", {}), ("abort", {"reason": "aborted"}),
    ]  # fmt: skip
    assert lives[1].t_us == told[3].t_us


def test_numbers_that_the_ledger_cannot_hold_are_left_out_and_counted(logs, tmp_path):
    (logs / "prefill-0/counts.log").write_text(
        "[2026-09-14 12:00:07 TP0] len(chunked_dst_kv_indice) = 1, len(kv_chunk.prefill_kv_indices) = 99999999999999999999\n"
        "[2026-09-14 12:00:07 TP0] Deferred KV release failed for room 99999999999999999999\n"
    )
    done, ledger = ingested(logs, tmp_path)
    assert "found" not in rows(ledger, "checks")[0]
    assert not ledger.problems and done.rows


def test_what_is_no_known_file_is_told_and_links_are_not_followed(logs, tmp_path):
    (logs / "prefill-0/picture.png").write_bytes(b"\x89PNG\r\n")
    (tmp_path / "outside.log").write_text(SERVER)
    (logs / "link.log").symlink_to(tmp_path / "outside.log")
    done, ledger = ingested(logs, tmp_path)
    assert [(skip.where, skip.why) for skip in done.notes.skips] == [("prefill-0/picture.png", "no known kind of file")]
    assert {writer.worker for writer in ledger.writers} == {"prefill-0"} and not done.whole


def test_a_ledger_is_never_written_over(logs, tmp_path):
    ingested(logs, tmp_path)
    with pytest.raises(LedgerError, match="never rewritten"):
        ingest_folder(logs, tmp_path / "ledger", key=KEY)


@pytest.mark.parametrize("options", [{"zone": "Mars/Olympus"}, {"key": b"short"}])
def test_bad_options_say_what_to_do(logs, tmp_path, options):
    with pytest.raises(ValueError, match=r"write one such as|16 to 64"):
        ingest_folder(logs, tmp_path / "ledger", **options)


def test_local_times_are_of_the_zone(logs, tmp_path):
    done, ledger = ingested(logs, tmp_path, zone="Europe/Berlin")
    assert any("--tz" in what for what in done.notes.assumed)  # the entry times are of another zone
    expire = rows(ledger, "transfers")[-1]
    assert expire["t"].isoformat() == "2026-09-14T10:00:06+00:00"


def test_the_command_finds_the_reader_through_its_entry_point(logs, tmp_path, monkeypatch):
    class Entry:
        name = "folder"

        def load(self):
            return ingest_folder

    monkeypatch.setattr(ingest_command, "entry_points", lambda group: [Entry()] if group == "kv_witness.ingest" else [])
    (tmp_path / "key").write_bytes(KEY)
    ask = ["ingest", str(logs), "--ledger", str(tmp_path / "l"), "--key-file", str(tmp_path / "key"), "--json"]
    result = CliRunner().invoke(cli, ask)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"] == {"prefill-0": 5}
    assert "holds nothing for a ledger: 1 x lines without SGLang's prefix" in result.stderr
    again = CliRunner().invoke(cli, ask)
    assert again.exit_code == 64 and "never rewritten" in again.stderr
    gaps = CliRunner().invoke(cli, ["gaps", "--ledger", str(tmp_path / "l"), "--format", "json"])
    assert gaps.exit_code == 2 and {row["table"] for row in json.loads(gaps.stdout)["rows"]} >= {
        "pages",
        "transfers",
        "steps",
    }


def test_without_a_reader_the_command_says_what_to_install(logs, tmp_path, monkeypatch):
    monkeypatch.setattr(ingest_command, "entry_points", lambda group: [])
    result = CliRunner().invoke(cli, ["ingest", str(logs), "--ledger", str(tmp_path / "l")])
    assert result.exit_code == 64 and "install kvwitness" in result.stderr


def test_a_folder_with_nothing_in_it_is_an_error(tmp_path):
    (tmp_path / "logs").mkdir()
    with pytest.raises(LedgerError, match="nothing that can be placed in time"):
        ingest_folder(tmp_path / "logs", tmp_path / "ledger")


def test_a_copied_capture_alone_is_read_from_its_decoded_lines(tmp_path):
    folder = tmp_path / "logs" / "decode"
    folder.mkdir(parents=True)
    shutil.copy(CAPTURES / "vllm-pd-nixl/decode/events.jsonl", folder)
    done, ledger = ingested(folder.parent, tmp_path)
    assert done.notes.taken["KV line"] == 5 and len(rows(ledger, "cache")) == done.notes.taken["KV event"]
