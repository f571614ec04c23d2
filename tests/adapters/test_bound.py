"""Bounds: what each rule finds and leaves alone, and the incident's 155 between them."""

import json
import shutil

import pytest
from click.testing import CliRunner
from fleet_logs import Fleet
from reading import CAPTURES, REPOSITORY

from engine.adapters.ingest import ingest_folder
from engine.ledger.reader import read_ledger
from engine.simulation.ordinary_logs import write_ordinary_logs
from forensics.cli import cli

KEY = b"k" * 32
SAMPLES = REPOSITORY / "sample_logs"


def bound(ledger, *more):
    result = CliRunner().invoke(cli, ["bound", "--ledger", str(ledger), "--format", "json", *more])
    assert result.exit_code in (0, 2), result.output
    found = json.loads(result.stdout)
    assert result.exit_code == (2 if found["rows"] else 0)
    return {row["rid"]: row for row in found["rows"]}, found["bound"]


def of(fleet, tmp_path, *more):
    ingest_folder(fleet.write(tmp_path / "logs"), tmp_path / "ledger", key=KEY)
    return bound(tmp_path / "ledger", *more)


def logged(sample, tmp_path):
    """A sample's run as ordinary logs, read back."""
    write_ordinary_logs(read_ledger(SAMPLES / sample / "ledger"), tmp_path / "logs")
    done = ingest_folder(tmp_path / "logs", tmp_path / "ledger", key=KEY)
    assert done.whole, done.words()
    return tmp_path / "ledger"


def test_the_incident_is_bracketed(tmp_path):
    ledger = logged("glm53-155", tmp_path)
    expected = json.loads((SAMPLES / "glm53-155/expected.json").read_text())
    contaminated = {one["rid"] for one in expected["contaminated"]}
    customers = {one["rid"] for one in expected["contaminated"] if one["purpose"] == "customer"}
    rows, counts = bound(ledger)
    assert counts["least"] <= len(contaminated) == 185 <= counts["most"]
    assert contaminated <= set(rows)
    own = tmp_path / "own"
    own.write_text("".join(f"{rid}\n" for rid in contaminated - customers))
    rows, counts = bound(ledger, "--without", str(own))
    assert counts["least"] <= len(customers) == 155 <= counts["most"] == 157
    assert set(rows) == customers | {"fresh-0", "fresh-1"}
    assert all(row["rules"] == "over-limit placeholder short-transfer" for row in rows.values())


SMALL = [
    path.parent.relative_to(SAMPLES).as_posix()
    for path in sorted(SAMPLES.rglob("expected.json"))
    if path.parent.name not in ("glm53-155", "gappy") and not path.parent.name.startswith("vllm-")
]


@pytest.mark.parametrize("sample", SMALL)
def test_least_accuses_nobody_wrongly_and_the_healthy_are_left_alone(sample, tmp_path):
    rows, _ = bound(logged(sample, tmp_path))
    expected = json.loads((SAMPLES / sample / "expected.json").read_text())
    guilty = {one["rid"] for one in expected["contaminated"]}
    assert {rid for rid, row in rows.items() if row["bound"] == "least"} <= guilty
    assert {rid for rid, row in rows.items() if row["bound"] == "unfilled"} <= guilty | set(expected["corrupt"])
    if sample == "classes/m01-short-handoff":
        assert guilty and guilty <= set(rows)
    if sample == "classes/m04-lost-ack":  # its donor's pages were let go by a timer
        assert guilty and guilty <= {rid for rid, row in rows.items() if row["rules"] == "after-timeout"}
    if sample == "healthy":
        assert not rows


def test_sides_that_share_only_the_room_are_one_handoff(tmp_path):
    ledger = tmp_path / "ledger"
    logged("classes/m01-short-handoff", tmp_path)
    rows, _ = bound(ledger)
    shutil.rmtree(ledger)
    for path in (tmp_path / "logs").rglob("*.log"):
        if path.parent.name.startswith("prefill"):  # a prefill that was given no rid makes its own
            text = path.read_text()
            for rid in sorted(rows):
                text = text.replace(rid, f"p-{rid}")
            path.write_text(text)
    ingest_folder(tmp_path / "logs", ledger, key=KEY)
    again, _ = bound(ledger)
    assert set(again) == set(rows) and all("placeholder" in row["rules"] for row in again.values())


def test_more_unfilled_pages_than_were_never_written_are_another_requests(tmp_path):
    fleet = Fleet(pool=12)
    fleet.handoff("whole", 0, 512)  # 8 of 12 pages had been written
    fleet.handoff("short", 30, 6 * 64, prefill=1)  # 5 unfilled, and only 4 pages never written
    fleet.handoff("fits", 60, 5 * 64, prefill=1)  # 4 unfilled: they may be those
    rows, counts = of(fleet, tmp_path)
    assert {rid: (row["bound"], row["unfilled_pages"]) for rid, row in rows.items()} == {
        "short": ("least", 5), "fits": ("unfilled", 4),
    }  # fmt: skip
    assert (counts["least"], counts["unfilled"], counts["most"]) == (1, 2, 2)


def test_pages_held_at_one_time_add_up_and_pages_held_one_after_another_do_not(tmp_path):
    fleet = Fleet(pool=12)
    fleet.handoff("a", 0, 256)
    fleet.handoff("b", 20, 256)
    fleet.handoff("after-turns", 40, 9 * 64, prefill=1)  # 8 unfilled, 4 written for certain: 12 in all
    fleet.handoff("c", 60, 256, lasts=20)
    fleet.handoff("d", 62, 256, lasts=20)
    fleet.handoff("after-both", 100, 6 * 64, prefill=1)  # 5 unfilled, 8 written
    rows, _ = of(fleet, tmp_path)
    assert {rid: row["bound"] for rid, row in rows.items()} == {"after-turns": "unfilled", "after-both": "least"}


def test_a_prompt_at_the_limit_is_left_alone_and_one_behind_it_is_not(tmp_path):
    fleet = Fleet(limit=640, pool=40)
    fleet.handoff("at", 0, 640)
    fleet.handoff("over", 30, 641)
    fleet.handoff("refused", 60, 641, output=0)
    rows, _ = of(fleet, tmp_path)
    assert {rid: (row["bound"], row["rules"]) for rid, row in rows.items()} == {"over": ("possible", "over-limit")}


def test_lengths_that_differ_and_totals_too_small(tmp_path):
    fleet = Fleet(pool=40)
    fleet.handoff("measure", 0, 640)
    fleet.handoff("truncated", 30, 512, prefill=500)
    fleet.handoff("lost-pages", 60, 512, pages=3)
    fleet.handoff("unmeasured", 90, 512, pages=0)
    rows, _ = of(fleet, tmp_path)
    assert {rid: (row["bound"], row["rules"]) for rid, row in rows.items()} == {
        "truncated": ("possible", "lengths-differ"), "lost-pages": ("possible", "short-transfer"),
    }  # fmt: skip
    assert rows["lost-pages"]["unfilled_pages"] == 4  # of 5: what was moved is rounded up


def test_a_release_by_timeout_leaves_whoever_came_then_possible(tmp_path):
    fleet = Fleet(pool=40)
    fleet.handoff("before", 0, 128, lasts=5)
    fleet.timed_out(20)
    fleet.handoff("soon", 25, 128, lasts=5)
    fleet.handoff("late", 200, 128, lasts=5)
    rows, _ = of(fleet, tmp_path)
    assert {rid: (row["bound"], row["rules"]) for rid, row in rows.items()} == {
        rid: ("possible", "after-timeout") for rid in ("soon", "late")
    }
    assert set(bound(tmp_path / "ledger", "-p", "late_for_s=60")[0]) == {"soon"}


def test_a_decode_that_was_told_of_another_requests_blocks_is_seen_in_a_real_capture(tmp_path):
    ingest_folder(CAPTURES / "vllm-pd-nixl", tmp_path / "ledger", key=KEY)
    rows, _ = bound(tmp_path / "ledger")
    assert [rid for rid, row in rows.items() if "lengths-differ" in row["rules"]] == ["cmpl-wrong-owner-0"]


def test_where_prefill_left_nothing_nobody_is_ruled_out(tmp_path):
    fleet = Fleet(pool=40)
    fleet.handoff("seen", 0, 128)
    fleet.handoff("half-seen", 30, 128)
    fleet.lines["prefill"].pop()
    rows, counts = of(fleet, tmp_path)
    assert {rid: (row["bound"], row["rules"]) for rid, row in rows.items()} == {"half-seen": ("possible", "unseen")}
    assert (counts["least"], counts["most"]) == (0, 1)


def test_an_alarm_of_the_engines_own_that_names_a_request_leaves_it_possible(tmp_path):
    fleet = Fleet(pool=40)
    fleet.handoff("well", 0, 128)
    fleet.handoff("alarmed", 30, 128)
    fleet.handoff("ended", 60, 128, output=0)
    for rid in ("alarmed", "ended"):
        fleet.say("decode", 35, f"KV checksum mismatch req={rid} bootstrap_room=1 expected=0x1 got=0x2")
    rows, _ = of(fleet, tmp_path)
    assert {rid: (row["bound"], row["rules"]) for rid, row in rows.items()} == {"alarmed": ("possible", "alarm")}


def test_the_words_say_bound_every_rule_and_what_it_does_not_see(tmp_path):
    fleet = Fleet()
    fleet.handoff("short", 0, 512, prefill=1)
    ingest_folder(fleet.write(tmp_path / "logs"), tmp_path / "ledger", key=KEY)
    result = CliRunner().invoke(cli, ["bound", "--ledger", str(tmp_path / "ledger")])
    assert "bound, no verdict: at least 0, at most 1 responses" in result.stderr
    for rule in ("over-limit", "placeholder", "lengths-differ", "short-transfer", "after-timeout", "alarm", "unseen"):
        assert f"{rule}: " in result.stderr
    assert result.stderr.count("It does not see") == 7 and "no log shows which page was whose" in result.stderr


@pytest.mark.parametrize("sample", ["classes/m01-short-handoff", "classes/m02-fail-open", "classes/m04-lost-ack"])
def test_a_recorded_ledger_can_be_bounded_too(sample):
    rows, counts = bound(SAMPLES / sample / "ledger")
    expected = json.loads((SAMPLES / sample / "expected.json").read_text())
    assert {one["rid"] for one in expected["contaminated"]} <= set(rows) and counts["most"] == len(rows)


@pytest.mark.parametrize("sample", SMALL)
def test_where_pages_are_named_least_accuses_nobody_wrongly(sample):
    rows, _ = bound(SAMPLES / sample / "ledger")
    expected = json.loads((SAMPLES / sample / "expected.json").read_text())
    guilty = {one["rid"] for one in expected["contaminated"]}
    least = {rid for rid, row in rows.items() if row["bound"] == "least"}
    assert least <= guilty
    if sample == "classes/m01-short-handoff":
        assert least == guilty


def test_where_decode_names_its_pages_the_incident_is_bounded_from_below(tmp_path):
    expected = json.loads((SAMPLES / "glm53-155/expected.json").read_text())
    customers = {one["rid"] for one in expected["contaminated"] if one["purpose"] == "customer"}
    own = tmp_path / "own"
    own.write_text("".join(f"{one['rid']}\n" for one in expected["contaminated"] if one["purpose"] != "customer"))
    rows, counts = bound(SAMPLES / "glm53-155/ledger", "--without", str(own))
    assert (counts["least"], counts["most"]) == (155, 157)
    assert {rid for rid, row in rows.items() if row["bound"] == "least"} == customers
    assert {rid for rid, row in rows.items() if row["bound"] == "unfilled"} == {"fresh-0", "fresh-1"}
