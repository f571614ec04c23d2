"""`engine demo` as a newcomer sees it, and its leak against the checkpoint's oracle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import pytest

from engine.demo import (
    ANSWER_TOKENS,
    LEAK_TOKENS,
    MARKER,
    OVER_POOL_TOKENS,
    donor_prompt,
    victim_prompt,
)  # fmt: skip
from engine.induction import byte_codes
from engine.ledger.reader import read_ledger
from engine.oracle import Oracle, own_slots
from engine.tokenizer import PAD, ByteTokenizer
from forensics.foreign_reads import foreign_reads

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory):
    place = tmp_path_factory.mktemp("demo")
    begun, before, queue = time.monotonic(), getrusage(RUSAGE_CHILDREN), os.getloadavg()[0]
    command = [sys.executable, "-m", "engine.cli", "demo", "--ledger", str(place / "demo-ledger")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    seconds, after = time.monotonic() - begun, getrusage(RUSAGE_CHILDREN)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Where other work waits for the same cores, the clock tells of that, not of the demo.
    alone = queue <= 2 * (os.cpu_count() or 1)
    return done, place / "demo-ledger", seconds if alone else worked


def predicted_leak() -> str:
    """What must come out if brio's 43 pages hold acme's slots, but for slot 0, which holds the placeholder.

    acme's prompt and answer were written at positions 0 and on; brio reserved the same pages in the same order."""
    oracle, tokenizer = Oracle(byte_codes()), ByteTokenizer()
    prompt = tokenizer.encode(donor_prompt())
    donor = own_slots(prompt + oracle.continuation(prompt, ANSWER_TOKENS))
    stub = own_slots([PAD])
    first = oracle.next_token([], stub[0])
    rest = oracle.decode([*stub, *donor[1:OVER_POOL_TOKENS]], first, OVER_POOL_TOKENS, LEAK_TOKENS - 1)
    return tokenizer.decode([first, *rest])


def test_the_demo_tells_the_incident(demo):
    done, _, seconds = demo
    assert done.returncode == 0, done.stdout + done.stderr
    assert MARKER in done.stdout.split("and reads:")[1].splitlines()[1]
    assert "HTTP 200" in done.stdout and f"{OVER_POOL_TOKENS} prompt and {LEAK_TOKENS} output tokens" in done.stdout
    assert "contaminated" in done.stdout and "demo-acme" in done.stdout and "M1" in done.stdout
    assert "HTTP 400 prompt_exceeds_pool" in done.stdout
    assert "Try next" in done.stdout
    assert seconds < 60


def test_the_leaked_text_is_what_the_oracle_predicts(demo):
    done, _, _ = demo
    leak = predicted_leak()
    assert MARKER in leak and MARKER not in victim_prompt()
    assert repr(leak) in done.stdout


def test_the_ledgers_stay_and_name_donor_and_pages(demo):
    _, ledger, _ = demo
    reads = foreign_reads(read_ledger(ledger / "incident"))
    victim = next(row for row in reads.responses.to_pylist() if row["rid"] == "demo-brio")
    assert (victim["verdict"], victim["proof"], victim["mechanism"]) == ("contaminated", "proved", "M1")
    assert victim["donors"] == ["demo-acme"]
    assert victim["pages"] == -(-OVER_POOL_TOKENS // 16)
    defended = foreign_reads(read_ledger(ledger / "defended"))
    assert all(row["verdict"] == "clean" for row in defended.responses.to_pylist())


def test_no_text_stands_in_the_ledger(demo):
    _, ledger, _ = demo
    for path in Path(ledger).rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert MARKER.encode() not in data and b"verapamil" not in data and b"budget" not in data, path
