"""A request whose end does not say how many pages rows it had is judged by what is missing while it lived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ledger_surgery import Place, Surgery, responses
from site_ledger import Side, Site

from engine.ledger.reader import Ledger


def alone_and_silent(directory: Path) -> Site:
    """A decode worker whose rows never have `page_rows`."""
    site = Site(directory, "decode-0")
    record = site.decode.rec.record

    def silent(table: str, op: str, **columns: Any) -> int:
        return record(table, op, **{name: value for name, value in columns.items() if name != "page_rows"})

    site.decode.rec.record = silent  # type: ignore[method-assign]
    return site


def reads_of_another(decode: Side) -> int:
    """`victim` binds a page that `other` filled; returns the seq of that bind."""
    other = decode.receive("other", "t-other")
    theirs = decode.fill("kv", other, [1])
    victim = decode.receive("victim", "t-victim")
    bound = decode.pages("bind", "kv", victim, theirs, [1], pos=0)
    mine = decode.fill("kv", victim, [2], pos=1)
    decode.pages("bind", "kv", victim, mine, [2], pos=1, tokens=1)
    decode.run()
    decode.run()
    decode.end(victim, 2)
    decode.end(other, 0)
    return bound


def verdicts(ledger: Ledger) -> dict[str, str]:
    return {rid: row["verdict"] for rid, row in responses(ledger, "both")[1].items()}


def test_a_lost_bind_leaves_nothing_clean(tmp_path: Path) -> None:
    site = alone_and_silent(tmp_path / "ledger")
    bound: Place = ("decode-0", "pages", reads_of_another(site.decode))
    surgery = Surgery(site.close())
    assert verdicts(surgery.ledger)["victim"] == "contaminated"
    assert verdicts(surgery.without(bound))["victim"] == "unknown"


def test_a_lost_unbind_accuses_nobody(tmp_path: Path) -> None:
    site = alone_and_silent(tmp_path / "ledger")
    decode = site.decode
    reader = decode.receive("reader", "t-reader")
    tag = decode.fill("kv", reader, [1, 2], pos=0)
    decode.pages("bind", "kv", reader, tag, [1, 2], pos=0, tokens=5)
    decode.run()
    unbound = decode.pages("unbind", "kv", reader, tag, [1], cause="left_window")
    decode.pages("free", "kv", reader, tag, [1], cause="left_window")
    writer = decode.receive("writer", "t-writer")
    decode.pages("bind", "kv", writer, decode.fill("kv", writer, [1], pos=0), [1], pos=0, tokens=1)
    decode.run()
    decode.run()
    decode.end(reader, 3)
    decode.end(writer, 2)
    surgery = Surgery(site.close())
    assert verdicts(surgery.ledger) == {"reader": "clean", "writer": "clean"}
    assert verdicts(surgery.without(("decode-0", "pages", unbound))) == {"reader": "unknown", "writer": "clean"}


def test_a_row_lost_after_its_end_does_not_matter(tmp_path: Path) -> None:
    site = alone_and_silent(tmp_path / "ledger")
    decode = site.decode
    first = decode.receive("first")
    decode.pages("bind", "kv", first, decode.fill("kv", first, [1], pos=0), [1], pos=0, tokens=1)
    decode.run()
    decode.end(first, 2)
    later = decode.fill("kv", decode.receive("second"), [2], pos=0)
    lost = decode.pages("free", "kv", None, later, [2], cause="finish")
    surgery = Surgery(site.close())
    assert verdicts(surgery.without(("decode-0", "pages", lost)))["first"] == "clean"
