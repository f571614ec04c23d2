"""Exposures and derived reads in the SQL, by docs/verdicts.md: bytes that passed by, and what the contaminated wrote."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_builder import INF, PREFILL
from sql_cases import ANN_TAG, BOB_TAG, CID_TAG, Build, Scene, brief, judge

Rows = dict[str, list[dict[str, Any]]]

EXPOSURES: dict[str, tuple[Build, list[tuple[str, str, str | None, str]]]] = {}


def exposure(name: str, *expected: tuple[str, str, str | None, str]) -> Any:
    def keep(build: Build) -> Build:
        EXPOSURES[name] = (build, list(expected))
        return build

    return keep


def passing(
    lo: int = 12, hi: int = 15, end: int = INF, held: bool = False, known: bool = True, writer: str = "far_bob"
) -> Build:
    """Bob's transfer lands in Ann's life; her own write comes after it."""

    def build(scene: Scene) -> None:
        scene.rows["tags"][0]["end_seq"] = end
        if known:
            scene.life(BOB_TAG, scene.page, scene.bob, 1, 9, held=held)
        scene.write(scene.far, getattr(scene, writer), 70, 30)
        scene.sent(BOB_TAG, lo, hi)
        scene.own(hi, hi + 1)
        scene.reads()

    return build


CLEAN = ("clean", "", None, "")
exposure("passing", ("exposed", "M3", "bob", ""))(passing())
exposure("passing-held", ("exposed", "M4", "bob", ""))(passing(held=True))
exposure("passing-unknown-tag", ("exposed", "M13", "bob", ""))(passing(known=False))
exposure("passing-at-the-reserve", ("exposed", "M3", "bob", ""))(passing(lo=10))
exposure("passing-round-the-reserve", CLEAN)(passing(lo=9))
exposure("passing-to-the-end", ("exposed", "M3", "bob", ""))(passing(end=15))
exposure("passing-over-the-end", CLEAN)(passing(end=14))
exposure("passing-own", CLEAN)(passing(writer="far_ann"))


@exposure("passing-of-several", ("exposed", "M3", "?", ""))
def _several(scene: Scene) -> None:
    scene.write(scene.far, scene.far_cid, 72, 45, 44)
    passing()(scene)


@exposure("passing-mixed", ("unknown", "", None, "undecided source"))
def _mixed(scene: Scene) -> None:
    scene.write(scene.far, scene.far_ann, 72, 45, 44)
    passing()(scene)


@exposure("passing-of-nobody", CLEAN)
def _nobody(scene: Scene) -> None:
    scene.sent(BOB_TAG)
    scene.own(15, 16)
    scene.reads()


@exposure("passing-from-nowhere", ("unknown", "", None, "source unknown"))
def _nowhere(scene: Scene) -> None:
    scene.sent(BOB_TAG, src=None)
    scene.own(15, 16)
    scene.reads()


@exposure("passing-and-read", ("foreign", "M3", "bob", ""))
def _read(scene: Scene) -> None:
    scene.life(BOB_TAG, scene.page, scene.bob, 1, 9)
    scene.write(scene.far, scene.far_bob, 70, 30)
    scene.sent(BOB_TAG)
    scene.reads()


@exposure("cross-tenant-share", ("exposed", "mechanism unknown", None, ""))
def _cross_tenant(scene: Scene) -> None:
    scene.life(BOB_TAG, scene.page, scene.bob, 1)
    scene.write(scene.page, scene.bob, BOB_TAG, 12)
    scene.share(scene.ann, scene.page, BOB_TAG, 16, "tenant")
    scene.reads(BOB_TAG)


def released(end: int) -> Build:
    """Ann's source page was given up at `end` while it was read in (40, 50]."""

    def build(scene: Scene) -> None:
        scene.life(70, scene.far, scene.far_ann, 1, end)
        scene.write(scene.far, scene.far_ann, 70, 30)
        scene.sent()
        scene.reads()

    return build


RELEASED = ("exposed", "M5", None, "source released while it was read")
exposure("released-before", CLEAN)(released(40))
exposure("released-during", RELEASED)(released(41))
exposure("released-to-the-last", RELEASED)(released(49))
exposure("released-after", CLEAN)(released(50))


@pytest.fixture(scope="module")
def judged() -> Rows:
    return judge({name: build for name, (build, _) in EXPOSURES.items()})


@pytest.mark.parametrize("name", EXPOSURES)
def test_exposure(name: str, judged: Rows) -> None:
    found = brief(judged[name], "kind", "mechanism", "donor_rid", "reason")
    assert found == EXPOSURES[name][1]


def tainted(scene: Scene, *, written: tuple[int, int] = (31, 32), reader: str = "cid") -> None:
    """Ann reads Bob's leftover from seq 20 on and writes another page, which `reader` reads by a share."""
    scene.bobs(4, 5)
    scene.reads()
    given = scene.cell(2)
    scene.life(CID_TAG, given, scene.ann, 10)
    scene.write(given, scene.ann, CID_TAG, written[1], written[0])
    taker = getattr(scene, reader)
    scene.runs(taker, (42, 45))
    scene.share(taker, given, CID_TAG, 35, "same")
    scene.read(given, taker, CID_TAG, 40)


def test_reading_what_a_contaminated_request_wrote_afterwards_is_derived() -> None:
    rows = judge({"one": tainted})["one"]
    columns = ("kind", "proof", "derived", "mechanism", "donor_rid", "first_step", "first_seq", "page_list")
    assert brief(rows, *columns, rid="cid") == [("foreign", "proved", True, "mechanism unknown", "bob", 45, 40, [2])]
    assert brief(rows, "derived", "page_list") == [(False, [1])]


def test_what_was_written_before_the_foreign_read_is_clean() -> None:
    rows = judge({"one": lambda scene: tainted(scene, written=(19, 20))})["one"]
    assert brief(rows, "kind", "derived", rid="cid") == [("clean", False)]


def test_reading_the_own_aftermath_is_not_derived_twice() -> None:
    def build(scene: Scene) -> None:
        scene.bobs(4, 5)
        scene.reads()
        later = scene.cell(2)
        scene.life(CID_TAG, later, scene.ann, 10)
        scene.write(later, scene.ann, CID_TAG, 24, 20)
        scene.read(later, scene.ann, CID_TAG, 24)

    assert brief(judge({"one": build})["one"], "kind", "derived", "page_list") == [
        ("clean", False, [2]),
        ("foreign", False, [1]),
    ]


def test_taint_goes_through_a_second_reader_and_a_transfer() -> None:
    def build(scene: Scene) -> None:
        tainted(scene)
        passed_on = scene.cell(3)
        scene.life(11, passed_on, scene.cid, 30)
        scene.write(passed_on, scene.cid, 11, 47, 45)
        dan, far_dan = scene.request("dan"), scene.request("dan", PREFILL)
        scene.share(dan, passed_on, 11, 48, "same")
        scene.runs(dan, (52, 55))
        scene.read(passed_on, dan, 11, 50)
        target = scene.cell(9, PREFILL)
        scene.life(12, target, far_dan, 1)
        scene.runs(far_dan, (62, 65), kind="prefill")
        scene.landing(target, 12, 5, 6, passed_on, 11, (50, 55))
        scene.read(target, far_dan, 12, 60)

    rows = judge({"one": build})["one"]
    assert [(r["rid"], r["worker"], r["derived"], r["donor_rid"], r["page_list"]) for r in rows] == [
        ("ann", "decode-0", False, "bob", [1]),
        ("cid", "decode-0", True, "bob", [2]),
        ("dan", "decode-0", True, "bob", [3]),
        ("dan", "prefill-0", True, "bob", [9]),
    ]


def test_own_rows_lost_says_nothing_else_of_a_request_and_taints_nobody() -> None:
    def build(scene: Scene) -> None:
        tainted(scene)
        other = scene.cell(7, pool="index")
        scene.read(other, scene.ann, ANN_TAG, 20)
        scene.rows["requests"][scene.ann]["rows_complete"] = False

    rows = judge({"one": build})["one"]
    lost = ("unknown", "proved", "own rows lost", None, "", None)
    assert brief(rows, "kind", "proof", "reason", "donor_rid", "mechanism", "first_seq") == [lost, lost]
    assert brief(rows, "pool", "page_list") == [("index", [7]), ("kv", [1])]
    assert brief(rows, "kind", rid="cid") == [("clean",)]
