"""Landings that a failed tag check places: the only one that brought its tag, and no pass that its request sat out."""

from __future__ import annotations

from typing import Any

import pytest

from forensics.content import ContentEvent, run_of
from forensics.failed_checks import proved_by_checks
from forensics.order import INF
from forensics.reading import attendances
from forensics.rows import WorkerRows

AT = ("decode-0", 1)
OURS, THEIRS = 1, 2
CHECKED = {"op": "passed", "req": 7, "detector": "D4", "step": None}


def worker(*requests: dict[str, Any], passed: int = 4, pages: list[dict[str, Any]] | None = None) -> WorkerRows:
    """Request 7 binds pages 3 and 4 at seq 10; passes 1 to 4 end at 20, 30, 40 and 50; pass 3 finds another's tag, and the
    request ends for it. `passed`: pages that were checked and held."""
    found = WorkerRows(AT, role="decode")
    found.pages = [{"op": "bind", "req": 7, "seq": 10, "pool": "kv", "pages": [3, 4]}, *(pages or [])]
    found.requests = list(requests)
    found.steps = [
        {
            "op": "decode",
            "step": n,
            "n": 1,
            "since_seq": 10 * n + 9,
            "seq": 10 * n + 10,
            "t": n,
            "t_end": n,
            "micros": 1,
        }
        for n in range(1, 5)
    ]
    found.checks = [
        {
            "op": "mismatch", "req": 7, "pool": "kv", "page": 3, "step": 3, "expected": OURS, "found": THEIRS, "seq": 41,
            "detector": "D4", "action": "refuse",
        },
        CHECKED | {"n": passed},
    ]  # fmt: skip
    return found


def landing(lo: int = 5, hi: int = INF, tag: int = THEIRS) -> ContentEvent:
    return ContentEvent((AT, "kv", 3), "landing", 0, 16, lo, hi, tag=tag)


def placed(at: WorkerRows, *events: ContentEvent, lost: tuple[tuple[int, int], ...] = ()) -> list[tuple[int, int]]:
    runs = proved_by_checks(at, attendances(at), [run_of(event) for event in events], lost)
    return [(run.event.lo, run.event.hi) for run in runs]


def test_it_stands_between_the_last_pass_that_held_and_the_one_that_failed() -> None:
    assert placed(worker(), landing()) == [(30, 39)]
    assert placed(worker(), landing(tag=OURS)) == [(5, INF)]


def test_of_two_that_brought_the_tag_neither_is_placed() -> None:
    assert placed(worker(), landing(), landing(lo=7)) == [(5, INF), (7, INF)]


@pytest.mark.parametrize(("resumed", "lo"), [(15, 30), (35, 5)])
def test_passes_before_its_request_was_resumed_held_nothing(resumed: int, lo: int) -> None:
    def paused(req: int) -> list[dict[str, Any]]:
        return [{"op": "pause", "req": req, "seq": resumed - 2}, {"op": "resume", "req": req, "seq": resumed}]

    assert placed(worker(*paused(7)), landing()) == [(lo, 39)]
    assert placed(worker(*paused(8)), landing()) == [(30, 39)]


@pytest.mark.parametrize(("gap", "lo"), [((31, 33), 5), ((15, 17), 5), ((2, 4), 30), ((45, 47), 30)])
def test_a_check_that_failed_before_may_be_lost(gap: tuple[int, int], lo: int) -> None:
    assert placed(worker(), landing(), lost=(gap,)) == [(lo, 39)]


@pytest.mark.parametrize(("passed", "lo"), [(4, 30), (3, 5), (0, 5)])
def test_a_pass_that_nobody_checked_says_nothing(passed: int, lo: int) -> None:
    assert placed(worker(passed=passed), landing()) == [(lo, 39)]


def test_a_page_that_was_appended_after_a_pass_was_not_checked_in_it() -> None:
    grown = worker(passed=5, pages=[{"op": "append", "req": 7, "seq": 35, "pool": "kv", "pages": [5]}])
    grown.checks[0]["page"] = 5
    at = ContentEvent((AT, "kv", 5), "landing", 0, 16, 5, INF, tag=THEIRS)
    assert placed(grown, at) == [(5, 39)]
