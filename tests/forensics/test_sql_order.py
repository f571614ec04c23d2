"""Every relation of docs/verdicts.md, "Order", in the SQL: one read of Ann's page, which Bob wrote too."""

from __future__ import annotations

from typing import Any

import pytest
from sql_cases import ANN_TAG, BOB_TAG, Build, Scene, brief, judge

EXPOSED = ("exposed", "proved", "")
CLEAN, INFERRED_CLEAN = ("clean", "proved", ""), ("clean", "inferred", "")
FOREIGN, INFERRED_FOREIGN = ("foreign", "proved", ""), ("foreign", "inferred", "")
UNDECIDED = ("unknown", "inferred", "undecided order")


def both(
    bob: tuple[int, int], ann: tuple[int, int], bobs: dict[str, Any] | None = None, anns: dict[str, Any] | None = None
) -> Build:
    """Bob writes in (lo, hi], Ann writes in (lo, hi], Ann reads from 20 on."""

    def build(scene: Scene) -> None:
        scene.bobs(*bob, **(bobs or {}))
        scene.own(*ann, **(anns or {}))
        scene.reads()

    return build


def bob_after(lo: int, hi: int, s1_max: int = 30, **columns: Any) -> Build:
    """Ann's own content is there when she binds; Bob writes in (lo, hi]."""

    def build(scene: Scene) -> None:
        scene.own(11, 12)
        scene.bobs(lo, hi, **columns)
        scene.reads(s1_max=s1_max)

    return build


def own_growth(bob: tuple[int, int]) -> Build:
    def build(scene: Scene) -> None:
        scene.bobs(*bob)
        scene.reads(growth=scene.own(20, 30, kind="growth"))

    return build


def with_ghost(scene: Scene) -> None:
    scene.own(1, 5)
    scene.ghost(scene.page, 6, 8)
    scene.reads()


def hidden_twice(scene: Scene) -> None:
    """Bob's write is hidden by one event that is itself hidden and over before the read."""
    scene.bobs(1, 9, mover=3, post_seq=30, done_seq=40)
    scene.own(2, 6, mover=3, post_seq=40, done_seq=45)
    scene.own(6, 7)
    scene.reads()


def hidden_by_clock_twice(scene: Scene) -> None:
    """By the clock Bob was before an event that another hides for certain."""
    scene.bobs(1, 9, t_lo=10, t_hi=20)
    scene.own(2, 6, t_lo=30, t_hi=40)
    scene.own(6, 7)
    scene.reads()


def contradiction(scene: Scene) -> None:
    """Two movers' records that put each event before the other leave nothing: no reason to call it clean."""
    scene.own(1, 9, mover=3, post_seq=1, done_seq=2, stream=4)
    scene.own(1, 8, mover=3, post_seq=5, done_seq=6, stream=4)
    scene.reads()


CASES: dict[str, tuple[Build, tuple[str, str, str]]] = {
    "before-seq": (both((1, 5), (5, 9)), CLEAN),
    "before-overlap": (both((1, 6), (5, 9)), UNDECIDED),
    "before-mover": (both((1, 9), (2, 9), {"mover": 3, "done_seq": 40}, {"mover": 3, "post_seq": 40}), CLEAN),
    "before-mover-late": (both((1, 9), (2, 9), {"mover": 3, "done_seq": 41}, {"mover": 3, "post_seq": 40}), UNDECIDED),
    "before-other-mover": (both((1, 9), (2, 9), {"mover": 3, "done_seq": 40}, {"mover": 4, "post_seq": 40}), UNDECIDED),
    "before-mover-unknown": (both((1, 9), (2, 9), {"done_seq": 40}, {"post_seq": 40}), UNDECIDED),
    "before-stream": (both((1, 8), (1, 9), {"stream": 1}, {"stream": 1}), CLEAN),
    "before-stream-tie": (both((1, 9), (1, 9), {"stream": 1}, {"stream": 1}), UNDECIDED),
    "before-other-stream": (both((1, 8), (1, 9), {"stream": 1}, {"stream": 2}), UNDECIDED),
    "before-clock": (both((1, 9), (1, 9), {"t_hi": 100}, {"t_lo": 101}), INFERRED_CLEAN),
    "before-clock-tie": (both((1, 9), (1, 9), {"t_hi": 100}, {"t_lo": 100}), UNDECIDED),
    "before-clock-null": (both((1, 9), (1, 9), {"t_hi": 100}), UNDECIDED),
    "before-seq-outranks-clock": (both((5, 9), (1, 5), {"t_hi": 100}, {"t_lo": 101}), FOREIGN),
    "before-mover-outranks-clock": (
        both((1, 9), (1, 9), {"t_hi": 100, "mover": 3, "post_seq": 8}, {"t_lo": 101, "mover": 3, "done_seq": 8}), FOREIGN,
    ),
    "before-stream-outranks-clock": (both((1, 9), (1, 8), {"t_hi": 100, "stream": 1}, {"t_lo": 101, "stream": 1}), FOREIGN),
    "pre-seq": (both((1, 5), (10, 20)), CLEAN),
    "pre-seq-late": (both((1, 5), (10, 21)), UNDECIDED),
    "pre-clock": (both((1, 5), (10, 21), None, {"t_hi": 220}), INFERRED_CLEAN),
    "pre-clock-tie": (both((1, 5), (10, 21), None, {"t_hi": 221}), UNDECIDED),
    "pre-seq-outranks-clock": (both((1, 5), (20, 21), None, {"t_hi": 1}), UNDECIDED),
    "pre-growth": (own_growth((1, 5)), CLEAN),
    "pre-growth-overlap": (own_growth((1, 21)), UNDECIDED),
    "gone-seq": (bob_after(30, 31), EXPOSED),
    "gone-seq-early": (bob_after(29, 31), UNDECIDED),
    "gone-clock": (bob_after(29, 31, t_lo=300), EXPOSED),
    "gone-clock-tie": (bob_after(29, 31, t_lo=299), UNDECIDED),
    "gone-tail-open": (bob_after(31, 33, s1_max=35), UNDECIDED),
    "gone-clock-tail-open": (bob_after(29, 31, s1_max=35, t_lo=300), UNDECIDED),
    "gone-seen-outranks-clock": (bob_after(20, 25, t_lo=300), FOREIGN),
    "seen-last-since": (bob_after(20, 25), FOREIGN),
    "seen-last-since-late": (bob_after(20, 26), UNDECIDED),
    "seen-clock": (bob_after(20, 26, t_hi=297), INFERRED_FOREIGN),
    "seen-clock-tie": (bob_after(20, 26, t_hi=298), UNDECIDED),
    "passed-from-start": (both((1, 5), (25, 26)), FOREIGN),
    "passed-too-late": (both((1, 5), (24, 26)), UNDECIDED),
    "passed-by-since": (both((20, 22), (25, 26)), FOREIGN),
    "passed-since-too-early": (both((20, 23), (25, 26)), UNDECIDED),
    "ghost-hides-nothing": (with_ghost, ("unknown", "inferred", "missing rows in pages")),
    "hidden-by-a-hidden-event": (hidden_twice, CLEAN),
    "hidden-by-clock-by-a-hidden-event": (hidden_by_clock_twice, INFERRED_CLEAN),
    "nothing-left": (contradiction, UNDECIDED),
}  # fmt: skip


@pytest.fixture(scope="module")
def judged() -> dict[str, list[dict[str, Any]]]:
    return judge({name: build for name, (build, _) in CASES.items()})


@pytest.mark.parametrize("name", CASES)
def test_order(name: str, judged: dict[str, list[dict[str, Any]]]) -> None:
    assert brief(judged[name], "kind", "proof", "reason") == [CASES[name][1]]


def long_history(scene: Scene) -> None:
    """A hundred lives before Ann's; each read finds its own life's write and no other."""
    for life in range(100):
        taker = scene.request(f"r{life}")
        at = 1000 + life * 10
        scene.runs(taker, (at + 2, at + 3))
        scene.life(at, scene.page, taker, at, at + 10)
        scene.write(scene.page, taker, at, at + 1)
        scene.read(scene.page, taker, at, at + 1)


def test_history_changes_nothing() -> None:
    rows = judge({"history": long_history})["history"]
    assert [(row["kind"], row["proof"]) for row in rows] == [("clean", "proved")] * 100


def test_two_of_one_stream_keep_their_launch_order_beside_a_third() -> None:
    def build(scene: Scene) -> None:
        scene.bobs(1, 8, stream=1)
        scene.own(1, 9, stream=1)
        scene.write(scene.page, scene.ann, ANN_TAG, 9, 8, stream=2)
        scene.write(scene.page, scene.cid, BOB_TAG, 31, 30, stream=1)
        scene.reads()

    assert brief(judge({"one": build})["one"], "kind", "proof") == [("exposed", "proved")]
