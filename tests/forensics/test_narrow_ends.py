"""An end that lists fewer pages than its post leaves the rest in doubt, unless another end of the batch speaks of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ledger_surgery import responses
from site_ledger import Handoff, Site

from forensics.rows import WorkerRows
from forensics.transfer_batches import batches


def test_a_page_that_was_posted_and_that_no_end_speaks_of_is_unknown(tmp_path: Path) -> None:
    site = Site(tmp_path / "ledger")
    donor = Handoff(site, "donor", {"kv": [1, 2]}, {"kv": [21, 22]}, tenant="t-d")
    donor.grant()
    donor.compute()
    donor.abort()
    victim = Handoff(site, "victim", {"kv": [2]}, {"kv": [12]}, tenant="t-v")
    victim.grant()
    victim.compute()
    victim.send()
    victim.ack()
    victim.free_source()
    victim.commit()
    victim.dst.run()
    site.beat()
    donor.post(donor.row("kv"))
    donor.done(donor.row("kv", 0, 1))
    donor.ack()
    donor.free_source()
    site.beat()
    site.decode.run()
    victim.finish(2)
    _, found = responses(site.close(), "both")
    assert found["victim"]["verdict"] == "unknown"
    assert found["victim"]["reason"] == "transfer posted, outcome not known"


@pytest.mark.parametrize(
    ("ends", "left"),
    [
        ([("done", [1, 2, 3])], []),
        ([("done", [3, 1])], [[2]]),
        ([("done", [1]), ("fail", [2, 3])], []),
        ([("done", None)], []),
        ([("done", [1, 2, 3, 4])], []),
    ],
)
def test_what_no_end_of_a_batch_lists_is_a_batch_without_an_end(
    ends: list[tuple[str, list[int] | None]], left: list[list[int]]
) -> None:
    worker = WorkerRows(("prefill-0", 1))
    row: dict[str, Any] = {"xfer": 7, "chunk": 0, "part": 0, "dst_pool": "kv", "src_pages": None}
    worker.transfers = [row | {"op": "post", "seq": 1, "dst_pages": [1, 2, 3], "src_pages": [11, 12, 13]}]
    worker.transfers += [row | {"op": op, "seq": 2 + i, "dst_pages": pages} for i, (op, pages) in enumerate(ends)]
    open_ = [batch.lists for batch in batches(worker) if batch.end is None]
    assert [list(lists["dst_pages"]) for lists in open_] == left
    assert all(list(lists["src_pages"]) == [10 + page for page in lists["dst_pages"]] for lists in open_)
