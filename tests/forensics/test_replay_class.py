"""class(e; o, tau) of docs/verdicts.md, clause by clause: ann reads under tag 20, bob wrote before or elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_builder import INF, PREFILL, EvidenceBuilder

from forensics.replay_class import Class, Classifier, Content, Reader
from forensics.replay_facts import Facts
from forensics.replay_records import NONE

OWN, GIVEN, SOURCE = 20, 30, 500


class Scene:
    """ann's page (life under OWN) and bob's page (life under GIVEN, until 100) on decode; a source page on prefill."""

    def __init__(self) -> None:
        self.built = built = EvidenceBuilder()
        self.ann, self.bob = built.request("ann"), built.request("bob")
        self.ann_there, self.bob_there = built.request("ann", PREFILL), built.request("bob", PREFILL)
        self.lost = built.request(None)
        self.page, self.given, self.source = built.cell(0), built.cell(1), built.cell(0, PREFILL)
        built.life(OWN, self.page, self.ann, 10)
        built.life(GIVEN, self.given, self.bob, 10, 100)
        built.life(SOURCE, self.source, self.ann_there, 10, 100)

    def landing(self, *at_source: tuple[int, int, int], tag: int = OWN, cell: int | None = None, **columns: Any) -> int:
        """A landing in (50, 55], read from `source` under SOURCE in (40, 42]; writes there are (rq, tag, hi)."""
        for rq, written_under, hi in at_source:
            self.built.write(self.source, rq, written_under, hi)
        cell = self.page if cell is None else cell
        src = columns.pop("src", self.source)
        return self.built.landing(cell, tag, 50, 55, src, columns.pop("src_tag", SOURCE), (40, 42), **columns)

    def classify(self, event: int, rid: str = "ann", tag: int = OWN, s0: int = 60) -> Content:
        facts = Facts(self.built.build())
        owner = self.built.owner(rid)
        return Classifier(facts).classify(facts.event(event), Reader(owner, tag, s0))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def foreign(donor: int, cause: str = "") -> Content:
    return Content(Class.FOREIGN, donor, cause=cause)


def unknown(reason: str) -> Content:
    return Content(Class.UNKNOWN, reason=reason)


ANN, BOB = 0, 1


def test_what_nobody_wrote(scene: Scene) -> None:
    built = scene.built
    assert scene.classify(built.ghost(scene.page, 1, 5, "rows lost")) == unknown("rows lost")
    assert scene.classify(built.event(scene.page, "scrub", 1, 5)).of is Class.UNWRITTEN
    unwritten = next(e["event"] for e in built.rows["events"] if e["cell"] == scene.page and e["kind"] == "unwritten")
    assert scene.classify(unwritten).of is Class.UNWRITTEN


@pytest.mark.parametrize("kind", ["write", "growth"])
def test_local_writes(scene: Scene, kind: str) -> None:
    def written(rq: int, tag: int) -> Content:
        return scene.classify(scene.built.write(scene.page, rq, tag, 12, kind=kind))

    assert written(scene.ann, OWN).of is Class.ENTITLED
    assert written(scene.ann, OWN - 1).of is Class.STALE
    assert written(scene.bob, 7) == foreign(BOB)
    assert written(scene.bob, OWN) == foreign(BOB), "the tag is ann's: who wrote under it is not its owner"
    assert written(scene.lost, OWN) == unknown("owner lost")


@pytest.mark.parametrize(
    ("identity", "found"),
    [
        ("same", Content(Class.ENTITLED)),
        ("tenant", Content(Class.SHARED, cause="mechanism unknown")),
        ("meaning", Content(Class.WRONG, cause="M12")),
        ("both", foreign(BOB, "M12")),
    ],
)
def test_a_share_entitles_to_its_givers_content(scene: Scene, identity: str, found: Content) -> None:
    scene.built.share(scene.ann, scene.given, GIVEN, 58, identity)
    write = scene.built.write(scene.given, scene.bob, GIVEN, 50)
    assert scene.classify(write, tag=GIVEN) == found
    assert scene.classify(write, tag=GIVEN, s0=57) == foreign(BOB), "the share came after the read began"
    assert scene.classify(write, tag=OWN) == foreign(BOB), "attended under another tag"


def test_a_share_ends_with_its_givers_life(scene: Scene) -> None:
    scene.built.share(scene.ann, scene.given, GIVEN, 58, "same")
    inside = scene.built.write(scene.given, scene.bob, GIVEN, 100, lo=90)
    across = scene.built.write(scene.given, scene.bob, GIVEN, 101, lo=99)
    after = scene.built.write(scene.given, scene.bob, GIVEN, 102, lo=100)
    assert scene.classify(inside, tag=GIVEN).of is Class.ENTITLED
    assert scene.classify(across, tag=GIVEN) == unknown("undecided order")
    assert scene.classify(after, tag=GIVEN) == foreign(BOB)


def test_a_transfer_brings_what_its_reader_may_read_at_the_source(scene: Scene) -> None:
    assert scene.classify(scene.landing((scene.ann_there, SOURCE, 20))).of is Class.ENTITLED


def test_a_transfer_without_a_known_source(scene: Scene) -> None:
    assert scene.classify(scene.landing(src=None)) == unknown("source unknown")


def test_a_transfer_of_anothers_content(scene: Scene) -> None:
    assert scene.classify(scene.landing((scene.bob_there, 499, 20))) == foreign(BOB)
    assert scene.classify(scene.landing((scene.bob_there, 499, 20)), rid="bob") == Content(Class.STALE)


def test_a_transfer_of_what_nobody_wrote_or_of_own_stale_content(scene: Scene) -> None:
    assert scene.classify(scene.landing()).of is Class.UNWRITTEN
    assert scene.classify(scene.landing((scene.ann_there, 499, 20))).of is Class.STALE


def test_a_source_that_changed_while_it_was_read(scene: Scene) -> None:
    own_then_foreign = scene.landing((scene.ann_there, SOURCE, 20), (scene.bob_there, 501, 42))
    assert scene.classify(own_then_foreign) == unknown("undecided source")


def test_two_foreign_writers_at_the_source_leave_the_donor_open(scene: Scene) -> None:
    carl = scene.built.request("carl", PREFILL)
    assert scene.classify(scene.landing((scene.bob_there, 499, 20), (carl, 501, 42))) == foreign(NONE)


def test_foreign_or_unwritten_at_the_source_is_undecided(scene: Scene) -> None:
    scene.built.write(scene.source, scene.bob_there, 499, 45, lo=30)
    assert scene.classify(scene.landing()) == unknown("undecided source")


def test_the_smallest_reason_at_the_source_counts(scene: Scene) -> None:
    scene.built.ghost(scene.source, 30, 41, "z lost")
    scene.built.ghost(scene.source, 30, 41, "a lost")
    assert scene.classify(scene.landing((scene.ann_there, SOURCE, 20))) == unknown("a lost")


def test_a_transfer_under_another_tag_goes_by_its_roots(scene: Scene) -> None:
    own = scene.landing((scene.ann_there, SOURCE, 20), tag=OWN - 1)
    assert scene.classify(own).of is Class.STALE
    assert scene.classify(own, rid="bob") == foreign(ANN)


def test_a_transfer_under_a_tag_whose_owner_is_lost(scene: Scene) -> None:
    scene.built.rows["tags"][0]["owner"] = -1
    assert scene.classify(scene.landing((scene.ann_there, SOURCE, 20))) == unknown("owner lost")
    del scene.built.rows["tags"][0]
    assert scene.classify(scene.landing((scene.ann_there, SOURCE, 20))) == unknown("owner lost")


@pytest.mark.parametrize(
    ("identity", "found"),
    [
        ("same", Content(Class.ENTITLED)),
        ("tenant", Content(Class.SHARED, cause="mechanism unknown")),
        ("meaning", Content(Class.WRONG, cause="M12")),
        ("both", foreign(BOB, "M12")),
    ],
)
def test_what_was_shared_at_the_source_stays_so_after_the_transfer(scene: Scene, identity: str, found: Content) -> None:
    scene.built.life(777, scene.source, scene.bob_there, 5, 100)
    scene.built.share(scene.ann_there, scene.source, 777, 30, identity)
    assert scene.classify(scene.landing((scene.bob_there, 777, 20), src_tag=777)) == found


def test_a_share_taken_after_the_transfer_began_entitles_to_nothing(scene: Scene) -> None:
    scene.built.life(777, scene.source, scene.bob_there, 5, 100)
    scene.built.share(scene.ann_there, scene.source, 777, 41, "same")
    assert scene.classify(scene.landing((scene.bob_there, 777, 20), src_tag=777)) == foreign(BOB)


def test_a_share_of_a_page_that_a_transfer_filled(scene: Scene) -> None:
    scene.built.life(499, scene.source, scene.bob_there, 2, 9)
    event = scene.landing((scene.bob_there, 499, 8), tag=GIVEN, cell=scene.given, src_tag=499)
    assert scene.classify(event, rid="bob", tag=GIVEN).of is Class.ENTITLED
    assert scene.classify(event, tag=GIVEN) == foreign(BOB), "no share"
    scene.built.share(scene.ann, scene.given, GIVEN, 58, "tenant")
    assert scene.classify(event, tag=GIVEN).of is Class.SHARED


def test_a_share_of_a_page_whose_giver_is_not_known_to_be_entitled(scene: Scene) -> None:
    scene.built.share(scene.ann, scene.given, GIVEN, 58, "same")
    mixed = scene.landing(
        (scene.bob_there, 498, 20), (scene.bob_there, 499, 42), tag=GIVEN, cell=scene.given, src_tag=499
    )  # fmt: skip
    assert scene.classify(mixed, tag=GIVEN) == unknown("undecided source")
    scene = Scene()
    scene.built.share(scene.ann, scene.given, GIVEN, 58, "same")
    stale = scene.landing((scene.bob_there, 498, 20), tag=GIVEN, cell=scene.given, src_tag=499)
    assert scene.classify(stale, tag=GIVEN) == foreign(BOB)


def chain(landings: int) -> tuple[EvidenceBuilder, int, int]:
    """ann's content handed on from page to page; the last landing under OWN. Returns (builder, event, rq)."""
    built = EvidenceBuilder()
    ann = built.request("ann")
    cell = built.cell(0)
    built.life(100, cell, ann, 1)
    built.write(cell, ann, 100, 5)
    event = -1
    for i in range(1, landings + 1):
        target = built.cell(i)
        built.life(100 + i, target, ann, 1)
        event = built.landing(target, 100 + i, 10 * i, 10 * i + 1, cell, 99 + i, (10 * i, 10 * i + 1))
        cell = target
    return built, event, 100 + landings


@pytest.mark.parametrize(("landings", "found"), [(8, Content(Class.ENTITLED)), (9, unknown("transfer chain too long"))])
def test_transfers_nest_eight_deep(landings: int, found: Content) -> None:
    built, event, tag = chain(landings)
    facts = Facts(built.build())
    assert Classifier(facts).classify(facts.event(event), Reader(ANN, tag, 200)) == found


def test_transfers_in_a_circle_are_undecided() -> None:
    built = EvidenceBuilder()
    ann = built.request("ann")
    one, other = built.cell(0), built.cell(1)
    for tag, cell in ((1, one), (2, other)):
        built.life(tag, cell, ann, 1)
    event = built.landing(one, 1, 5, INF, other, 2, (4, INF))
    built.landing(other, 2, 5, INF, one, 1, (4, INF))
    facts = Facts(built.build())
    assert Classifier(facts).classify(facts.event(event), Reader(ANN, 1, 20)) == unknown("transfer chain too long")
