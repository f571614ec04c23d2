"""A writer whose rows are lost may have written anywhere in a pool that it had a grant for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fault_scenes import begun, prior
from ledger_surgery import Place, Surgery, responses
from scenes_handoff import SCENES
from scenes_reuse import SCENES as REUSE
from site_ledger import Handoff, Site

SCENE = SCENES["m13-shifted-by-one"]


@pytest.fixture
def surgery(tmp_path: Path) -> Surgery:
    return Surgery(SCENE.ledger(tmp_path / "ledger"))


def moves(surgery: Surgery, page: int) -> list[Place]:
    """Posts and dones of the batches that went to a page and to no page of their grant."""
    transfers = [place for place in surgery.places() if place[1] == "transfers"]
    granted = {
        row["xfer"]: set(row["dst_pages"]) for row in map(surgery.row, transfers) if row["op"] == "grant"
    }  # fmt: skip
    return [
        place
        for place in transfers
        if (row := surgery.row(place))["op"] in ("post", "done")
        and page in set(row["dst_pages"]) - granted[row["xfer"]]
    ]


def strayed_to(surgery: Surgery) -> int:
    """The page that the scene's stray bytes came to."""
    found, _ = responses(surgery.ledger)
    (page,) = next(
        row["page_list"] for row in found.findings.to_pylist() if row["rid"] == "bystander" and row["donor_rid"]
    )
    return int(page)


def test_a_bystander_is_in_doubt_where_post_and_done_of_the_stray_batch_are_lost(surgery: Surgery) -> None:
    lost = moves(surgery, strayed_to(surgery))
    assert {surgery.row(place)["op"] for place in lost} == {"post", "done"}
    _, before = responses(surgery.ledger)
    _, after = responses(surgery.without(*lost))
    assert before["bystander"]["verdict"] == "contaminated"
    assert after["bystander"]["verdict"] == "unknown" and "missing rows" in after["bystander"]["reason"]


def test_what_is_lost_after_the_writer_had_drained_leaves_no_doubt(tmp_path: Path) -> None:
    site = Site(tmp_path / "ledger")

    prior(site, "first")
    second = begun(site, "second", 2, first=8, at=16)
    second.send()
    second.ack()
    second.free_source()
    second.commit()
    site.decode.run()
    site.beat()
    lost = site.prefill.rec.record("transfers", "ack", xfer=1, status="sent", outstanding=0)
    site.beat()
    site.decode.run()
    second.finish(2)
    _, after = responses(Surgery(site.close()).without(("prefill-0", "transfers", lost)))
    assert {row["verdict"] for row in after.values()} == {"clean"}


def three_on_the_same_pages(directory: Path) -> Surgery:
    """`one`, `two` and `three` use the same pages on both sides, one after the other; then `four` uses others."""
    site = Site(directory)
    for rid, first in (("one", 1), ("two", 1), ("three", 1), ("four", 11)):
        prior(site, rid, first=first)
        site.beat()
    return Surgery(site.close())


def transfer(surgery: Surgery, op: str, number: int, status: str | None = None) -> Place:
    """The place of the `number`th such row of the mover."""
    return [
        place
        for place in surgery.places()
        if place[:2] == ("prefill-0", "transfers")
        and (row := surgery.row(place))["op"] == op
        and (status is None or row["status"] == status)
    ][number]


@pytest.mark.parametrize("op", ["post", "done"])
def test_a_lost_end_of_a_batch_is_in_doubt_no_longer_than_it_can_have_lasted(tmp_path: Path, op: str) -> None:
    surgery = three_on_the_same_pages(tmp_path / "ledger")
    _, after = responses(surgery.without(transfer(surgery, op, 1)))
    verdicts = {rid: row["verdict"] for rid, row in after.items()}
    assert verdicts == {
        "one": "clean",
        "two": "clean" if op == "post" else "unknown",
        "three": "clean",
        "four": "clean",
    }


def test_a_batch_may_have_ended_where_its_mover_lost_more_after_it_said_that_it_had_drained(tmp_path: Path) -> None:
    surgery = three_on_the_same_pages(tmp_path / "ledger")
    _, after = responses(surgery.without(transfer(surgery, "done", 1), transfer(surgery, "ack", 3, "sent")))
    assert after["two"]["verdict"] == after["three"]["verdict"] == "unknown"


def test_of_two_lost_rows_nobody_knows_which_was_the_post_of_an_end(tmp_path: Path) -> None:
    surgery = three_on_the_same_pages(tmp_path / "ledger")
    _, after = responses(surgery.without(transfer(surgery, "post", 1), transfer(surgery, "ack", 0, "sent")))
    assert after["two"]["verdict"] == "unknown"


def late_batch(surgery: Surgery) -> tuple[Place, Place]:
    """Post and done of the last batch of the mover."""
    return transfer(surgery, "post", -1), transfer(surgery, "done", -1)


@pytest.mark.parametrize("name", ["m4-acked-too-early", "m4-acked-while-outstanding"])
def test_a_mover_that_lost_a_whole_batch_is_not_taken_at_its_word(tmp_path: Path, name: str) -> None:
    surgery = Surgery(REUSE[name].ledger(tmp_path / "ledger"))
    _, after = responses(surgery.without(*late_batch(surgery)), "both")
    assert after["victim"]["verdict"] == "unknown"


def test_a_batch_of_which_both_ends_are_lost_was_under_way_between_them(tmp_path: Path) -> None:
    """Its post is lost before what is read, its done after it: no lost row stands where the bytes landed."""
    site = Site(tmp_path / "ledger")
    donor = Handoff(site, "donor", {"kv": [1, 2]}, {"kv": [21, 22]}, tenant="t-donor")
    donor.grant()
    donor.compute()
    row = donor.row("kv")
    donor.post(row)
    site.beat()
    donor.abort()
    victim = Handoff(site, "victim", {"kv": [1, 2]}, {"kv": [11, 12]}, tenant="t-victim").through()
    site.beat()
    donor.done(row)
    donor.ack()
    donor.free_source()
    surgery = Surgery(site.close())
    lost = transfer(surgery, "post", 0), transfer(surgery, "done", -1)
    assert all(surgery.row(place)["src_pages"] == [21, 22] for place in lost)
    _, before = responses(surgery.ledger)
    _, after = responses(surgery.without(*lost), "both")
    assert before[victim.rid]["verdict"] == after[victim.rid]["verdict"] == "unknown"


def without_column(site: Site, op: str, name: str) -> None:
    """The decode worker leaves a column of its `op` rows null."""
    record = site.decode.rec.record

    def silent(table: str, written: str, **columns: Any) -> int:
        if written == op:
            columns.pop(name, None)
        return record(table, written, **columns)

    site.decode.rec.record = silent  # type: ignore[method-assign]


def test_a_grant_that_names_no_writer_is_anybodys(tmp_path: Path) -> None:
    site = Site(tmp_path / "ledger")
    without_column(site, "grant", "writers")
    REUSE["m3-late-write"].build(site)
    surgery = Surgery(site.close())
    _, before = responses(surgery.ledger)
    _, after = responses(surgery.without(*late_batch(surgery)), "both")
    assert (before["victim"]["verdict"], after["victim"]["verdict"]) == ("contaminated", "unknown")


@pytest.mark.parametrize("peer", ["named", "null"])
def test_an_ack_of_nobody_in_particular_drains_no_grant_of_two_writers(tmp_path: Path, peer: str) -> None:
    site = Site(tmp_path / "ledger", "gateway-0", "prefill-0", "decode-0", "prefill-1")
    if peer == "null":
        without_column(site, "ack", "peer")
    first = Handoff(site, "first", {"kv": [1]}, {"kv": [21]})
    first.grant(writers=["prefill-0", "prefill-1"])
    first.compute()
    first.send()
    first.ack()
    first.free_source()
    first.abort(hold=True)
    first.release("drained")
    # Of prefill-1 nothing is known any more but that it ended.
    lost = site["prefill-1"].rec.record(
        "transfers", "abort", xfer=first.xfers["kv"], status="received", peer="decode-0"
    )
    Handoff(site, "victim", {"kv": [1]}, {"kv": [11]}, tenant="t-victim").through()
    surgery = Surgery(site.close())
    _, after = responses(surgery.without(("prefill-1", "transfers", lost)), "both")
    assert after["victim"]["verdict"] == "unknown"


def test_an_end_that_leaves_its_pages_to_its_post_is_a_lost_batch_without_it(tmp_path: Path) -> None:
    site = Site(tmp_path / "ledger")
    record = site.prefill.rec.record

    def short(table: str, op: str, **columns: Any) -> int:
        left = ("src_pages", "dst_pages") if op == "done" else ()
        return record(table, op, **{name: value for name, value in columns.items() if name not in left})

    site.prefill.rec.record = short  # type: ignore[method-assign]
    REUSE["m4-acked-too-early"].build(site)
    surgery = Surgery(site.close())
    _, before = responses(surgery.ledger)
    _, after = responses(surgery.without(transfer(surgery, "post", -1)), "both")
    assert (before["victim"]["verdict"], after["victim"]["verdict"]) == ("contaminated", "unknown")


def never_ended(directory: Path) -> Surgery:
    """The end of a batch of `donor` was never recorded, though its mover said that it had drained; `other` moved meanwhile."""
    site = Site(directory, "gateway-0", "prefill-0", "decode-0", "prefill-1")
    donor = Handoff(site, "donor", {"kv": [1, 2]}, {"kv": [21, 22]}, tenant="t-donor")
    other = Handoff(site, "other", {"kv": [8]}, {"kv": [28]}, tenant="t-other")
    for handoff in (donor, other):
        handoff.grant()
        handoff.compute()
    donor.post(donor.row("kv"))
    other.send()
    other.ack()
    donor.abort(hold=True)
    donor.ack()
    donor.release("drained")
    donor.free_source()
    other.free_source()
    other.commit()
    site.decode.run()
    other.finish(1)
    Handoff(site, "victim", {"kv": [1, 2]}, {"kv": [11, 12]}, tenant="t-victim", src="prefill-1").through(2)
    return Surgery(site.close())


def test_a_lost_row_of_another_transfer_ends_no_batch(tmp_path: Path) -> None:
    surgery = never_ended(tmp_path / "ledger")
    _, before = responses(surgery.ledger)
    assert before["victim"]["verdict"] == "unknown"
    others = [transfer(surgery, "post", -1), transfer(surgery, "done", -1), transfer(surgery, "ack", 0, "sent")]
    others.append(transfer(surgery, "abort", 0, "received"))
    for lost in others:
        _, after = responses(surgery.without(lost), "both")
        assert after["victim"]["verdict"] == "unknown", surgery.row(lost)
