"""What a terminal shows of long work: how far it is, what is left; nothing of it where there is no terminal, or afterwards."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from engine.ledger.reader import read_ledger
from forensics import replay, sql_engine
from forensics.ask import Asked, ask
from forensics.catalogue import load_queries
from forensics.evidence import prepare
from forensics.progress import stages

LEDGER = Path(__file__).parents[2] / "sample_logs" / "classes" / "m03-late-write" / "ledger"


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def terminal() -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, force_terminal=True, width=160, color_system=None), written


def test_the_rest_takes_as_long_as_the_pace_of_its_stage_says():
    (console, written), clock = terminal(), Clock()
    with stages(console, clock) as tell:
        tell("reading")
        clock.now += 7
        tell("judging", 0, 40)
        for done in (1, 2, 3, 4):
            clock.now += 2
            tell("judging", done, 40)
    last = written.getvalue()
    assert "reading 7 s, judging ..." in last
    assert "4 of 40, 72 s left" in last


def test_before_there_is_a_pace_no_time_is_claimed():
    (console, written), clock = terminal(), Clock()
    with stages(console, clock) as tell:
        tell("judging [bold]", 0, 40)
    assert "judging [bold] ..." in written.getvalue()
    assert "0 of 40" in written.getvalue()
    assert "left" not in written.getvalue()


def test_the_line_is_gone_at_the_end():
    console, written = terminal()
    with stages(console, Clock()) as tell:
        tell("judging", 1, 2)
    assert written.getvalue().endswith("\x1b[1A\x1b[2K")


def test_without_a_terminal_nothing_is_written():
    written = io.StringIO()
    with stages(Console(file=written), Clock()) as tell:
        tell("judging", 1, 2)
    assert written.getvalue() == ""


def test_segments_are_counted_to_the_last():
    heard: list[tuple[int, int]] = []
    read_ledger(LEDGER, counted=lambda done, of: heard.append((done, of)))
    segments = len(list(LEDGER.glob("*/day=*/worker=*/*.parquet")))
    assert heard == [(done, segments) for done in range(1, segments + 1)]


@pytest.mark.parametrize("run", [sql_engine.run, replay.run])
def test_counting_changes_no_finding(run):
    evidence = prepare(read_ledger(LEDGER))
    heard: list[tuple[int, int]] = []
    counted = run(evidence, lambda done, of: heard.append((done, of)))
    assert counted.equals(run(evidence))
    assert heard and heard == [(done, heard[0][1]) for done in range(len(heard))]
    assert len(heard) <= heard[0][1] <= len(heard) + 1  # the last statement hands out the findings


def test_a_query_tells_each_of_its_stages():
    (incidents,) = [query for query in load_queries() if query.name == "incidents"]
    heard: dict[str, int | None] = {}

    def tell(stage: str, done: int = 0, of: int | None = None) -> None:
        heard[stage] = of

    ask(incidents, LEDGER, Asked(), tell=tell)
    assert list(heard) == [
        "reading the ledger", "preparing the evidence", "judging every response by SQL",
        "judging every response by replay", "incidents",
    ]  # fmt: skip
    assert heard["incidents"] == len(incidents.steps)
