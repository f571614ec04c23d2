"""Writes into appended pages: a pass that filled a page is its growth, and whatever else a row says was written counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ledger_surgery import responses
from site_ledger import Handoff, Site


def test_a_prefill_pass_may_fill_pages_that_it_appended(tmp_path: Path) -> None:
    site = Site(tmp_path / "ledger")
    one = Handoff(site, "one", {"kv": [1, 2]}, {"kv": [11, 12]})
    one.grant()
    src = one.src
    tag = one.src_tags["kv"] = src.rec.append("kv", one.there, np.array([11, 12], np.int32), pos=0)
    since, started = src.rec.seq, site.now
    site.wait(2)
    src.pages("write", "kv", one.there, tag, [11, 12], pos=0)
    src.rec.record(
        "steps", "prefill", since_seq=since, step=1, n=1, t=started, t_end=started, batch=1, micros=2000
    )  # fmt: skip
    src.first_token(one.there)
    one.send()
    one.ack()
    one.free_source()
    one.commit()
    one.dst.run()
    one.finish(2)
    _, found = responses(site.close(), "both")
    assert (found["one"]["verdict"], found["one"]["proof"]) == ("clean", "proved")


def grown(directory: Path, *pages: int) -> dict[str, str]:
    """`one` grows into page 5; a write of its growth lands on `pages`. `two` has page 2."""
    site = Site(directory)
    both = [Handoff(site, rid, {"kv": [n]}, {"kv": [10 + n]}, tenant=f"t-{rid}") for n, rid in ((1, "one"), (2, "two"))]
    for each in both:
        each.grant()
        each.compute()
        each.send()
        each.ack()
        each.free_source()
        each.commit()
    site.decode.run()
    tag = site.decode.rec.append("kv", both[0].here, np.array([5], np.int32), pos=1)
    site.decode.run(n=4)
    site.decode.pages("write", "kv", both[0].here, tag, pages, tokens=4 * len(pages), pos=1)
    site.decode.run()
    for each in both:
        each.finish(3)
    _, found = responses(site.close(), "both")
    return {rid: row["verdict"] for rid, row in found.items()}


def test_a_write_of_growth_on_a_page_of_another_request_is_foreign_there(tmp_path: Path) -> None:
    assert grown(tmp_path / "alone", 2) == {"one": "clean", "two": "contaminated"}
    assert grown(tmp_path / "after", 5, 2) == {"one": "clean", "two": "contaminated"}


def test_a_write_of_a_page_that_passes_filled_adds_nothing(tmp_path: Path) -> None:
    assert grown(tmp_path / "ledger", 5) == {"one": "clean", "two": "clean"}
