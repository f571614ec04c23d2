"""What a reader finds in an event, by docs/verdicts.md, in the SQL: one certain event on Ann's page per case."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_builder import INF
from sql_cases import ANN_TAG, BOB_TAG, Build, Scene, brief, judge

ENTITLED = ("clean", "", None)
STALE = UNWRITTEN = ("corrupt", "", None)
SHARED = ("exposed", "", None)
WRONG = ("corrupt", "", None)
BOBS = ("foreign", "", "bob")


def unknown(reason: str) -> tuple[str, str, None]:
    return ("unknown", reason, None)


def written(**columns: Any) -> Build:
    """One write at 12 on Ann's page."""

    def build(scene: Scene) -> None:
        columns_now = {"owner": scene.rows["requests"][scene.ann]["owner"], "tag": ANN_TAG} | columns
        scene.event(scene.page, columns_now.pop("kind", "write"), 11, 12, **columns_now)
        scene.reads()

    return build


def bobs_own_tag(scene: Scene) -> None:
    scene.bobs(11, 12)
    scene.reads()


def bob_under_anns_tag(scene: Scene) -> None:
    scene.write(scene.page, scene.bob, ANN_TAG, 12)
    scene.reads()


def lent(identity: str, *, seq: int = 16, lo: int = 11, hi: int = 12, end: int = INF, writer: str = "bob") -> Build:
    """Bob's page under his tag, shared with Ann at `seq`; his life ends at `end`."""

    def build(scene: Scene) -> None:
        scene.life(BOB_TAG, scene.page, scene.bob, 1, end)
        scene.write(scene.page, getattr(scene, writer), BOB_TAG, hi, lo)
        scene.share(scene.ann, scene.page, BOB_TAG, seq, identity)
        scene.reads(BOB_TAG)

    return build


def lent_twice(scene: Scene) -> None:
    """Two shares of one page and tag: the graver identity counts."""
    lent("same")(scene)
    scene.share(scene.ann, scene.page, BOB_TAG, 17, "both")


def lent_to_cid(scene: Scene) -> None:
    scene.life(BOB_TAG, scene.page, scene.bob, 1)
    scene.write(scene.page, scene.bob, BOB_TAG, 12)
    scene.share(scene.cid, scene.page, BOB_TAG, 16, "same")
    scene.reads(BOB_TAG)


def landed(
    *events: tuple[str, str | None, int, int, int],
    tag: int = ANN_TAG,
    lent_at: int | None = None,
    identity: str = "same",
) -> Build:
    """A transfer under `tag` from `far`, read there under tag 70 in (40, 50].

    `events`: (kind, writer, tag, lo, hi) at the source. Tag 70 is Ann's, or with `lent_at` Bob's and shared with her.
    """

    def build(scene: Scene) -> None:
        for kind, writer, at_tag, lo, hi in events:
            owner = scene.rows["requests"][getattr(scene, writer)]["owner"] if writer else -1
            scene.event(
                scene.far, kind, lo, hi, owner=owner, tag=at_tag, reason="rows lost" if kind == "ghost" else None
            )
        scene.life(70, scene.far, scene.far_ann if lent_at is None else scene.far_bob, 1)
        if lent_at is not None:
            scene.share(scene.far_ann, scene.far, 70, lent_at, identity)
        scene.sent(tag)
        scene.reads()

    return build


def no_source(scene: Scene) -> None:
    scene.sent(src=None)
    scene.reads()


def giver_lost(scene: Scene) -> None:
    """Content of Ann's own under a tag whose reserve is lost: nobody can say whose grant it answered."""
    scene.write(scene.far, scene.far_ann, 70, 30)
    scene.sent(tag=55)
    scene.reads(55)


def empty_source(scene: Scene) -> None:
    """The source's records contradict themselves."""
    for hi, post in ((9, 1), (8, 5)):
        scene.write(scene.far, scene.far_ann, 70, hi, 1, mover=3, post_seq=post, done_seq=post + 1, stream=4)
    scene.sent()
    scene.reads()


def relayed(hops: int) -> Build:
    """Ann's content handed on `hops` times; the first is written at 1, each next read at a later seq of the next page."""

    def build(scene: Scene) -> None:
        here, tag = scene.cell(100, ("prefill-0", 1)), 1000
        scene.life(tag, here, scene.far_ann, 0)
        scene.write(here, scene.far_ann, tag, 1)
        for hop in range(hops - 1):
            there = scene.cell(101 + hop, ("prefill-0", 1))
            scene.life(tag + 1, there, scene.far_ann, 0)
            scene.landing(there, tag + 1, 2 * hop + 1, 2 * hop + 2, here, tag, (2 * hop + 1, 2 * hop + 2))
            here, tag = there, tag + 1
        scene.sent(src=here, src_tag=tag)
        scene.reads()

    return build


def shared_landing(
    identity: str, *, source_owner: str = "far_bob", at: int = 16, end: int = INF, extra: tuple[str, int, int] | None = None
) -> Build:  # fmt: skip
    """Bob's content landed under his grant on Ann's page, and Ann reads it by a share of Bob's tag."""

    def build(scene: Scene) -> None:
        scene.life(BOB_TAG, scene.page, scene.bob, 1, end)
        scene.life(70, scene.far, scene.far_bob, 1)
        scene.write(scene.far, getattr(scene, source_owner), 70, 30)
        if extra is not None:
            scene.write(scene.far, getattr(scene, extra[0]), 71, extra[2], extra[1])
        scene.sent(BOB_TAG)
        scene.share(scene.ann, scene.page, BOB_TAG, at, identity)
        scene.reads(BOB_TAG)

    return build


ANNS, OTHERS, LATER = (
    ("write", "far_ann", 70, 29, 30),
    ("write", "far_bob", 71, 29, 30),
    ("write", "far_bob", 70, 44, 45),
)
CASES: dict[str, tuple[Build, tuple[str, str, str | None]]] = {
    "unwritten": (lambda scene: scene.reads(), UNWRITTEN),
    "scrub": (written(kind="scrub", owner=-1), UNWRITTEN),
    "owner-lost": (written(owner=-1), unknown("owner lost")),
    "own": (written(), ENTITLED),
    "own-growth": (written(kind="growth"), ENTITLED),
    "own-other-tag": (written(tag=6), STALE),
    "another's": (bobs_own_tag, BOBS),
    "another's-under-my-tag": (bob_under_anns_tag, BOBS),
    "lent-same": (lent("same"), ENTITLED),
    "lent-tenant": (lent("tenant"), SHARED),
    "lent-meaning": (lent("meaning"), WRONG),
    "lent-both": (lent("both"), BOBS),
    "lent-twice": (lent_twice, BOBS),
    "lent-at-bind": (lent("same", seq=20), ENTITLED),
    "lent-after-bind": (lent("same", seq=21), BOBS),
    "lent-to-another": (lent_to_cid, BOBS),
    "lent-written-at-the-end": (lent("same", end=12), ENTITLED),
    "lent-written-after-the-end": (lent("same", lo=15, hi=16, end=15), BOBS),
    "lent-written-round-the-end": (lent("same", lo=14, hi=16, end=15), unknown("undecided order")),
    "lent-not-the-giver's": (lent("same", writer="cid"), ("foreign", "", "cid")),
    "landed-own": (landed(ANNS), ENTITLED),
    "landed-source-unknown": (no_source, unknown("source unknown")),
    "landed-source-lost": (landed(ANNS, ("ghost", None, 0, 31, 32)), unknown("rows lost")),
    "landed-writer-lost": (landed(("write", None, 70, 29, 30)), unknown("owner lost")),
    "landed-source-contradicts": (empty_source, unknown("undecided source")),
    "landed-owner-of-tag-lost": (giver_lost, unknown("owner lost")),
    "landed-unwritten": (landed(), UNWRITTEN),
    "landed-stale": (landed(("write", "far_ann", 71, 29, 30)), STALE),
    "landed-another's": (landed(OTHERS), BOBS),
    "landed-several-others'": (landed(OTHERS, ("write", "far_cid", 72, 44, 45)), ("foreign", "", "?")),
    "landed-own-and-another's": (landed(ANNS, LATER), unknown("undecided source")),
    "landed-stale-and-another's": (landed(("write", "far_ann", 71, 29, 30), LATER), unknown("undecided source")),
    "landed-unwritten-and-another's": (landed(LATER), unknown("undecided source")),
    "landed-overwritten-after": (landed(ANNS, ("write", "far_bob", 71, 50, 51)), ENTITLED),
    "landed-other-tag-own": (landed(ANNS, tag=6), STALE),
    "landed-other-tag-another's": (landed(OTHERS, tag=6), BOBS),
    "landed-lent-at-the-source": (landed(("write", "far_bob", 70, 29, 30), lent_at=40), ENTITLED),
    "landed-lent-too-late": (landed(("write", "far_bob", 70, 29, 30), lent_at=41), BOBS),
    "landed-lent-of-another-tenant": (landed(("write", "far_bob", 70, 29, 30), lent_at=40, identity="tenant"), SHARED),
    "landed-lent-of-another-meaning": (landed(("write", "far_bob", 70, 29, 30), lent_at=40, identity="meaning"), WRONG),
    "landed-lent-of-both": (landed(("write", "far_bob", 70, 29, 30), lent_at=40, identity="both"), BOBS),
    "landed-lent-and-not": (
        landed(("write", "far_bob", 70, 29, 30), ("write", "far_bob", 71, 44, 45), lent_at=40), unknown("undecided source"),
    ),
    "relayed-8": (relayed(8), ENTITLED),
    "relayed-9": (relayed(9), unknown("transfer chain too long")),
    "shared-landing": (shared_landing("same"), ENTITLED),
    "shared-landing-tenant": (shared_landing("tenant"), SHARED),
    "shared-landing-meaning": (shared_landing("meaning"), WRONG),
    "shared-landing-both": (shared_landing("both"), BOBS),
    "shared-landing-too-late": (shared_landing("same", at=21), BOBS),
    "shared-landing-after-the-end": (shared_landing("same", end=12), BOBS),
    "shared-landing-round-the-end": (shared_landing("same", end=13), unknown("undecided order")),
    "shared-landing-not-the-giver's": (shared_landing("same", source_owner="far_cid"), ("foreign", "", "cid")),
    "shared-landing-the-reader's": (shared_landing("same", source_owner="far_ann"), STALE),
    "shared-landing-undecided": (shared_landing("same", extra=("far_cid", 44, 45)), unknown("undecided source")),
}  # fmt: skip


@pytest.fixture(scope="module")
def judged() -> dict[str, list[dict[str, Any]]]:
    return judge({name: build for name, (build, _) in CASES.items()})


@pytest.mark.parametrize("name", CASES)
def test_class(name: str, judged: dict[str, list[dict[str, Any]]]) -> None:
    assert brief(judged[name], "kind", "reason", "donor_rid") == [CASES[name][1]]
