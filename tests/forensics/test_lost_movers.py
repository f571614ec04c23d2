"""A writer whose rows are lost may have written anywhere in a pool that it had a grant for."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_scenes import begun, prior
from ledger_surgery import Place, Surgery, responses
from scenes_handoff import SCENES
from site_ledger import Site

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
