"""What loss does to the order between workers: an equal message that is lost, a clock whose contradiction is."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledger_surgery import Place, Surgery, responses
from site_ledger import Handoff, Site

from engine.ledger.reader import Ledger, read_ledger
from engine.ledger.recorder import Recorder
from forensics.loss import lost_to_order, missing_rows
from forensics.lost_transfers import lost_transfers
from forensics.order import INF, NOTHING, Lost, Order, build_order
from forensics.rows import worker_rows

WORKERS = ("gateway-0", "prefill-0", "decode-0", "prefill-1")
MOVER, TARGET = ("prefill-0", 1), ("decode-0", 1)


def order_of(ledger: Ledger) -> Order:
    workers = worker_rows(ledger)
    missing = missing_rows(ledger, workers)
    return build_order(workers, lost_to_order(missing, lost_transfers(workers, missing).left))


def rows(surgery: Surgery, op: str, status: str | None = None, worker: str = "prefill-0") -> list[Place]:
    """The places of such rows of one worker's transfers, in order."""
    return [
        place
        for place in surgery.places()
        if place[:2] == (worker, "transfers")
        and (row := surgery.row(place))["op"] == op
        and (status is None or row["status"] == status)
    ]


def drained_twice(directory: Path, beat: bool) -> Surgery:
    """`donor` is said to be drained before it is sent; its pages are `victim`'s when its bytes land."""
    site = Site(directory, *WORKERS)
    donor = Handoff(site, "donor", {"kv": [1, 2]}, {"kv": [21, 22]}, tenant="t-d")
    donor.grant()
    donor.compute()
    victim = Handoff(site, "victim", {"kv": [1, 2]}, {"kv": [11, 12]}, tenant="t-v", src="prefill-1")
    donor.abort(hold=True)
    donor.ack()
    donor.release("drained")
    victim.grant()
    victim.compute()
    victim.send()
    victim.ack()
    victim.free_source()
    victim.commit()
    victim.dst.run()
    if beat:
        site.beat()
    donor.send()
    donor.ack()
    donor.free_source()
    if beat:
        site.beat()
    site.decode.run()
    victim.finish(2)
    return Surgery(site.close())


@pytest.mark.parametrize("beat", [False, True])
def test_an_ack_heard_is_not_joined_to_a_later_equal_one_where_the_first_is_lost(tmp_path: Path, beat: bool) -> None:
    surgery = drained_twice(tmp_path / "ledger", beat)
    _, whole = responses(surgery.ledger)
    first, second = rows(surgery, "ack", "sent")
    heard = rows(surgery, "ack", "received", "decode-0")[0][2]
    _, left = responses(surgery.without(first), "both")
    assert whole["victim"]["verdict"] == "contaminated"
    assert left["victim"]["verdict"] == "unknown"
    assert order_of(surgery.without(first)).known(MOVER, TARGET, heard) == first[2]
    assert order_of(surgery.without(second)).known(MOVER, TARGET, heard) == first[2]


def test_what_is_lost_before_a_transfer_was_granted_was_no_message_of_it(tmp_path: Path) -> None:
    site = Site(tmp_path / "ledger", *WORKERS)
    Handoff(site, "one", {"kv": [1]}, {"kv": [11]}).through()
    site.beat()
    Handoff(site, "two", {"kv": [2]}, {"kv": [12]}).through()
    surgery = Surgery(site.close())
    ledger = surgery.without(rows(surgery, "ack", "sent")[0])
    second = rows(surgery, "ack", "sent")[1][2]
    assert order_of(ledger).known(MOVER, TARGET, rows(surgery, "ack", "received", "decode-0")[1][2]) == second
    assert responses(ledger)[1]["two"]["verdict"] == "clean"


def test_a_message_that_two_workers_may_have_sent_orders_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path / "ledger", *WORKERS)
    for name in ("prefill-0", "prefill-1"):
        site[name].rec.record("transfers", "ack", xfer=7, status="sent", peer="decode-0", outstanding=0)
    heard = site.decode.rec.record("transfers", "ack", xfer=7, status="received", outstanding=0)
    named = site.decode.rec.record("transfers", "ack", xfer=7, status="received", outstanding=0, peer="prefill-0")
    order = order_of(site.close())
    assert order.known(MOVER, TARGET, heard) == order.known(("prefill-1", 1), TARGET, heard) == NOTHING
    assert order.known(MOVER, TARGET, named) != NOTHING


def test_a_receipt_before_an_ack_that_may_have_been_heard_of_later_orders_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path / "ledger", *WORKERS)
    one = Handoff(site, "one", {"kv": [1]}, {"kv": [11]})
    one.grant()
    one.compute()
    receipt = one.dst.pages("receipt", "kv", one.here, one.dst_tags["kv"], [1], xfer=one.xfers["kv"])
    one.send()
    one.ack()
    surgery = Surgery(site.close())
    (heard,) = rows(surgery, "ack", "received", "decode-0")
    assert order_of(surgery.ledger).known(MOVER, TARGET, receipt) == NOTHING
    assert order_of(surgery.without(heard)).known(MOVER, TARGET, receipt) == NOTHING


def slow_clock(directory: Path) -> Surgery:
    """The clock of prefill-0 is 5 s behind; the bytes of `donor` land in what are `victim`'s pages."""
    site = Site(directory, *WORKERS)
    site.prefill.rec._now_us = lambda: site.now - 5_000_000
    donor = Handoff(site, "donor", {"kv": [1, 2]}, {"kv": [21, 22]}, tenant="t-d")
    donor.grant()
    donor.compute()
    victim = Handoff(site, "victim", {"kv": [1, 2]}, {"kv": [11, 12]}, tenant="t-v", src="prefill-1")
    donor.dst.pages("free", "kv", donor.here, donor.dst_tags["kv"], [1, 2], cause="abort")
    donor.ended(0, "abort", "499")
    victim.grant()
    victim.compute()
    victim.send()
    victim.ack()
    victim.free_source()
    victim.commit()
    victim.dst.run()
    donor.send()
    donor.free_source()
    site.decode.run()
    victim.finish(2)
    for name in ("prefill-0", "prefill-1"):
        site.decode.rec.heartbeat(name, 1, site[name].rec.seq, 0, 50)
    for side in site.sides.values():
        side.rec.close()
    return Surgery(read_ledger(directory))


def test_a_clock_stays_contradicted_where_the_row_that_says_so_is_lost(tmp_path: Path) -> None:
    surgery = slow_clock(tmp_path / "ledger")
    lost = [("post",), ("grant",), ("post", "done")]
    grants = rows(surgery, "grant", worker="decode-0")[:1]
    assert responses(surgery.ledger, "both")[1]["victim"]["verdict"] == "unknown"
    for ops in lost:
        places = [place for op in ops for place in (rows(surgery, op)[:1] or grants)]
        _, left = responses(surgery.without(*places), "both")
        assert left["victim"]["verdict"] == "unknown", ops


def test_a_clock_of_a_worker_that_lost_rows_is_trusted_as_far_as_edges_confirm_it(tmp_path: Path) -> None:
    surgery = slow_clock(tmp_path / "ledger")
    (grant,) = rows(surgery, "grant", worker="decode-0")[:1]
    order, now = order_of(surgery.without(grant)), 1_790_000_000_000_000
    assert MOVER not in order.contradicted
    early, late = order.bounds(now, MOVER, TARGET)
    assert early is None and late is not None and late - now > 4_000_000
    assert order.after(TARGET, grant[2], MOVER) == INF


def test_a_grant_of_another_worker_under_the_same_transfer_orders_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path / "ledger", "prefill-0", "decode-0", "decode-1")
    for name in ("decode-0", "decode-1"):
        site[name].rec.record("transfers", "grant", xfer=7, peer="prefill-0", writers=["prefill-0"])
    post = site.prefill.rec.record("transfers", "post", xfer=7, peer="decode-1", chunk=0)
    order = order_of(site.close())
    assert order.known(TARGET, MOVER, post) == NOTHING
    assert order.known(("decode-1", 1), MOVER, post) != NOTHING


def test_a_worker_started_anew_before_a_grant_sent_nothing_of_it_in_the_epoch_before(tmp_path: Path) -> None:
    site = Site(tmp_path / "ledger", "prefill-0", "decode-0")
    for _ in range(2):
        site.prefill.rec.record("transfers", "fail", xfer=1)
    site.prefill.rec.close()
    again = Recorder(
        site.directory, "prefill-0", ordinal=0, now_us=lambda: site.now, digest_key=b"scripted", threaded=False
    )
    again.record("workers", "start", role="prefill", ordinal=0)
    site.decode.rec.heartbeat("prefill-0", again.epoch, again.seq, 0, 50)
    xfer = 7
    site.decode.rec.record("transfers", "grant", xfer=xfer, peer="prefill-0", writers=["prefill-0"])
    sent = again.record("transfers", "ack", xfer=xfer, status="sent", peer="decode-0", outstanding=0)
    heard = site.decode.rec.record("transfers", "ack", xfer=xfer, status="received", peer="prefill-0", outstanding=0)
    again.close()
    site.decode.rec.close()
    workers = worker_rows(read_ledger(site.directory))
    order = build_order(workers, Lost({MOVER: [(1, 3)]}))
    assert order.known(("prefill-0", 2), TARGET, heard) == sent
