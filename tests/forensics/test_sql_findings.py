"""Findings in the SQL by docs/verdicts.md: mechanism, delivered, first step, loss, grouping and order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from evidence_builder import DECODE, INF
from sql_cases import ANN_TAG, BOB_TAG, Build, Scene, brief, judge

from forensics import sql_engine
from forensics.verdict import FINDING_COLUMNS

Rows = dict[str, list[dict[str, Any]]]


def life_of_ann(scene: Scene, **flags: Any) -> None:
    scene.rows["tags"][0] |= flags


def left_behind(**flags: bool) -> Build:
    """Bob's content from before Ann's reserve."""

    def build(scene: Scene) -> None:
        life_of_ann(scene, **flags)
        scene.bobs(4, 5)
        scene.reads()

    return build


def stray(lo: int = 12, known: bool = True, held: bool = False, hi: int = 15) -> Build:
    """A transfer of Bob's lands under his old tag while Ann has the page."""

    def build(scene: Scene) -> None:
        life_of_ann(scene, granted=True)
        if known:
            scene.life(BOB_TAG, scene.page, scene.bob, 1, 9, held=held)
        scene.write(scene.far, scene.far_bob, 70, 30)
        scene.sent(BOB_TAG, lo, hi)
        scene.reads()

    return build


def stray_by_clock(scene: Scene) -> None:
    """Whether the stray transfer came before the reserve and before Ann's own write only the clock can say."""
    life_of_ann(scene, granted=True)
    scene.life(BOB_TAG, scene.page, scene.bob, 1, 9)
    scene.write(scene.far, scene.far_bob, 70, 30)
    scene.own(9, 14, t_hi=100)
    scene.sent(BOB_TAG, 9, 15, t_lo=101)
    scene.reads()


def overwritten(reserve: int | None, end: int = INF, ended: str = "freed") -> Build:
    """Bob writes after Ann's reserve, under a tag of his that was reserved at `reserve` (None: no record)."""

    def build(scene: Scene) -> None:
        life_of_ann(scene, end_seq=end, ended=ended)
        if reserve is not None:
            scene.life(BOB_TAG, scene.page, scene.bob, reserve)
        scene.bobs(11, 12)
        scene.reads()

    return build


def sent_wrong(late: bool = False, reused: bool = False, in_window: bool = False, before: bool = False) -> Build:
    """What landed under Ann's own grant was Bob's at the source: there from before, reused, or read before it was ready."""

    def build(scene: Scene) -> None:
        life_of_ann(scene, granted=True)
        scene.life(70, scene.far, scene.far_ann, 31 if before else 1, 35 if reused else INF)
        scene.write(scene.far, scene.far_bob, 71, *((38, 35) if reused else (43, 41) if in_window else (30,)))
        if late:
            scene.write(scene.far, scene.far_ann, 70, 60, 55)
        scene.sent()
        scene.reads()

    return build


def of_both(scene: Scene) -> None:
    scene.life(BOB_TAG, scene.page, scene.bob, 1)
    scene.write(scene.page, scene.bob, BOB_TAG, 12)
    scene.share(scene.ann, scene.page, BOB_TAG, 16, "both")
    scene.reads(BOB_TAG)


def sent_of_both(scene: Scene) -> None:
    """Ann's prefill had Bob's page by a share that should not have been, and sent it on."""
    scene.life(70, scene.far, scene.far_bob, 1)
    scene.write(scene.far, scene.far_bob, 70, 30)
    scene.share(scene.far_ann, scene.far, 70, 35, "both")
    scene.sent()
    scene.reads()


MECHANISMS: dict[str, tuple[Build, tuple[str, str]]] = {
    "left-behind": (left_behind(), ("foreign", "mechanism unknown")),
    "left-behind-granted": (left_behind(granted=True), ("foreign", "M1")),
    "left-behind-failed": (left_behind(granted=True, failed=True), ("foreign", "M2")),
    "never-written": (lambda s: (life_of_ann(s, granted=True), s.reads()), ("corrupt", "M1")),
    "stray": (stray(), ("foreign", "M3")),
    "stray-held": (stray(held=True), ("foreign", "M4")),
    "stray-unknown-tag": (stray(known=False), ("foreign", "M13")),
    "stray-at-the-reserve": (stray(lo=10), ("foreign", "M3")),
    "stray-round-the-reserve": (stray(lo=9), ("foreign", "M1")),
    "stray-round-the-reserve-by-clock": (stray_by_clock, ("foreign", "M3")),
    "overwritten-under-no-life": (overwritten(None), ("foreign", "M13")),
    "overwritten-by-a-former-owner": (overwritten(5), ("foreign", "M7")),
    "overwritten-by-second-owner": (overwritten(11, end=11, ended="reserved"), ("foreign", "M8")),
    "overwritten-by-next-owner-of-a-stolen-page": (overwritten(17, end=16, ended="taken"), ("foreign", "M8")),
    "overwritten-by-later-owner": (overwritten(17, end=16), ("foreign", "M7")),
    "source-never-written": (sent_wrong(before=True), ("foreign", "M1")),
    "source-overrun": (sent_wrong(), ("foreign", "M13")),
    "source-reused": (sent_wrong(reused=True), ("foreign", "M5")),
    "source-reused-and-late": (sent_wrong(reused=True, late=True), ("foreign", "M5")),
    "source-written-over-while-read": (sent_wrong(in_window=True), ("unknown", "")),
    "source-late": (sent_wrong(late=True), ("foreign", "M6")),
    "share-of-both": (of_both, ("foreign", "M12")),
    "share-of-both-sent-on": (sent_of_both, ("foreign", "M12")),
}


def ended(
    last_token: int | None, ended_seq: int | None = 50, certain: bool = True, lo: int = 4, hi: int = 5, **event: Any
) -> Build:
    """Bob's content in (lo, hi] of Ann's decode; her last token left at `last_token`."""

    def build(scene: Scene) -> None:
        scene.rows["requests"][scene.ann] |= {"last_token": last_token, "ended_seq": ended_seq, "end_certain": certain}
        scene.bobs(lo, hi, **event)
        scene.reads()

    return build


def prefilled(*ann_rows: tuple[int | None, int | None]) -> Build:
    """Ann reads at prefill; `ann_rows` = (ended_seq, output_tokens) of her rows there and at decode."""

    def build(scene: Scene) -> None:
        for rq, (end, tokens) in zip((scene.far_ann, scene.ann), ann_rows, strict=True):
            scene.rows["requests"][rq] |= {"ended_seq": end, "output_tokens": tokens}
        scene.runs(scene.far_ann, (22, 25), kind="prefill")
        scene.life(70, scene.far, scene.far_ann, 10)
        scene.write(scene.far, scene.far_bob, 71, 12)
        scene.read(scene.far, scene.far_ann, 70, 20)

    return build


def gateway_reads(scene: Scene) -> None:
    scene.rows["requests"][scene.ann]["role"] = "gateway"
    ended(10_000)(scene)


# R starts at 221 where the content was there from the start; from (20, 26] on, by the clock, R is unknown and Q starts at 251.
DELIVERED: dict[str, tuple[Build, str]] = {
    "after-R": (ended(222), "yes"),
    "as-R-begins": (ended(221), "no"),
    "no-token": (ended(None), "no"),
    "running": (ended(None, None), "yes"),
    "running-perhaps": (ended(None, None, certain=False), "unknown"),
    "between-Q-and-R": (ended(230, lo=20, hi=25), "unknown"),
    "before-Q": (ended(220, lo=20, hi=25), "no"),
    "as-R-begins-after-Q": (ended(251, lo=20, hi=25), "unknown"),
    "after-R-and-Q": (ended(252, lo=20, hi=25), "yes"),
    "no-R-after-last": (ended(299, lo=25, hi=26, t_hi=297), "yes"),
    "no-R-before-last": (ended(298, lo=25, hi=26, t_hi=297), "unknown"),
    "no-R-before-Q": (ended(250, lo=25, hi=26, t_hi=297), "no"),
    "prefill-token": (prefilled((50, 0), (50, 1)), "yes"),
    "prefill-none": (prefilled((50, 0), (50, 0)), "no"),
    "prefill-running": (prefilled((50, 0), (None, None)), "unknown"),
    "prefill-not-said": (prefilled((50, None), (50, 0)), "unknown"),
    "other-role": (gateway_reads, "unknown"),
}


@pytest.fixture(scope="module")
def judged() -> Rows:
    cases = {name: build for name, (build, _) in MECHANISMS.items()}
    cases |= {f"delivered-{name}": build for name, (build, _) in DELIVERED.items()}
    return judge(cases)


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanism(name: str, judged: Rows) -> None:
    assert brief(judged[name], "kind", "mechanism") == [MECHANISMS[name][1]]


@pytest.mark.parametrize("name", DELIVERED)
def test_delivered(name: str, judged: Rows) -> None:
    assert [(row["kind"], row["delivered"]) for row in judged[f"delivered-{name}"]] == [("foreign", DELIVERED[name][1])]


@pytest.mark.parametrize(
    ("content", "steps"),
    [
        ({"lo": 4, "hi": 5}, (25, 25, "proved", 20)),  # there from the start: Q = R
        ({"lo": 20, "hi": 25}, (25, 30, "proved", 25)),  # during the first run
        ({"lo": 25, "hi": 26, "t_hi": 297}, (30, 33, "inferred", 26)),  # during the last run, of four steps: no R
    ],
)
def test_first_step(content: dict[str, int], steps: tuple[int, int, str, int]) -> None:
    def build(scene: Scene) -> None:
        scene.rows["passes"][-1]["n"] = 4
        scene.bobs(**content)
        scene.reads()

    rows = judge({"one": build})["one"]
    assert brief(rows, "first_step", "first_step_last", "first_step_proof", "first_seq") == [steps]


def test_a_lost_receive_is_named_by_its_place() -> None:
    def build(scene: Scene) -> None:
        nobody = scene.request(None)
        scene.runs(nobody, (22, 25))
        scene.read(scene.page, nobody, BOB_TAG, 20)

    rows = judge({"one": build})["one"]
    assert [(r["rid"], r["kind"], r["reason"]) for r in rows] == [("?decode-0/0/7", "unknown", "own rows lost")]


def test_only_the_gravest_kind_of_a_page_is_kept_and_its_cells_count_once() -> None:
    def build(scene: Scene) -> None:
        scene.own(11, 12)
        scene.reads()
        rest = scene.cell(1, tok_lo=64, tok_hi=128)
        third = scene.cell(1, tok_lo=128, tok_hi=192)
        for cell in (rest, third):
            scene.write(cell, scene.bob, BOB_TAG, 5)
            scene.read(cell, scene.ann, ANN_TAG, 20)

    assert brief(judge({"one": build})["one"], "kind", "pages", "page_list") == [("foreign", 1, [1])]


def test_pages_of_one_reason_make_one_row_in_page_order() -> None:
    def build(scene: Scene) -> None:
        for page in (30, 4, 12):
            cell = scene.cell(page)
            scene.write(
                cell,
                scene.bob,
                BOB_TAG,
                26 if page == 30 else 5,
                20 if page == 30 else 4,
                t_hi=230 if page == 30 else None,
            )
            scene.read(cell, scene.ann, ANN_TAG, 20)
        clean = scene.cell(2)
        scene.write(clean, scene.ann, ANN_TAG, 12)
        scene.read(clean, scene.ann, ANN_TAG, 20)

    rows = judge({"one": build})["one"]
    assert brief(rows, "kind", "proof", "pages", "page_list", "first_step", "first_step_last") == [
        ("clean", "proved", 1, [2], None, None),
        ("foreign", "proved", 2, [4, 12], 25, 25),
        ("foreign", "inferred", 1, [30], 25, 25),
    ]


def test_columns_are_the_contract_and_empty_evidence_gives_an_empty_table() -> None:
    scene = Scene()
    found = sql_engine.run(scene.build())
    assert found.schema == FINDING_COLUMNS
    assert found.num_rows == 0
    scene.bobs(4, 5)
    scene.reads()
    found = sql_engine.run(scene.build())
    assert found.schema == FINDING_COLUMNS
    assert isinstance(found, pa.Table)
    assert found.to_pylist() == [
        {
            "rid": "ann", "attempt": 0, "tenant": "t-ann", "worker": DECODE[0], "epoch": 1, "req": 1, "pool": "kv",
            "kind": "foreign", "proof": "proved", "derived": False, "delivered": "yes", "mechanism": "mechanism unknown",
            "donor_rid": "bob", "donor_tenant": "t-bob", "pages": 1, "page_list": [1], "first_step": 25,
            "first_step_last": 25, "first_step_proof": "proved", "first_seq": 20, "reason": "",
        }
    ]  # fmt: skip
