"""Where the prefill of a response stands among all of its length."""

import html
from pathlib import Path

import httpx
import pytest
from pilots import app_of, opened, until, worked_out
from text_snapshot import screen_text

from console.core.prefill_rank import PrefillRank, prefill_rank
from console.core.snapshot import Snapshot
from console.core.source import LedgerSource
from console.web.app import create_app
from console.web.gate import Gate, Role
from forensics.rows import rows_of

STORM = Path(__file__).parents[2] / "sample_logs" / "abort-storm" / "ledger"
NOW = 1_790_000_060_000_000


@pytest.fixture(scope="module")
def storm() -> Snapshot:
    reading = LedgerSource(STORM, now_us=lambda: NOW, engine="replay").read()
    assert isinstance(reading, Snapshot)
    return reading


def timed(shown: Snapshot) -> dict[str, tuple[int, float]]:
    """Length and time of every prefill, from the rows themselves."""
    roles = {r["worker"]: r["role"] for r in rows_of(shown.ledger.tables["workers"]) if r["op"] == "start"}
    known: dict[tuple[str, int], dict] = {}
    for row in rows_of(shown.ledger.tables["requests"]):
        if roles.get(row["worker"]) != "prefill" or row["req"] is None:
            continue
        one = known.setdefault((row["worker"], row["req"]), {})
        one[row["op"]] = row["t"]
        one |= {name: row[name] for name in ("rid", "prompt_tokens", "cached_tokens") if row[name] is not None}
    found = {}
    for one in known.values():
        if "receive" in one and "first_token" in one:
            tokens = max(one["prompt_tokens"] - one.get("cached_tokens", 0), 1)
            found[one["rid"]] = (1 << (tokens.bit_length() - 1), (one["first_token"] - one["receive"]) / 1000)
    return found


def test_the_rank_counts_those_that_were_faster_and_half_of_those_that_took_as_long(storm):
    every = timed(storm)
    assert len(every) > 100
    for rid in list(every)[::40]:
        bucket, ms = every[rid]
        beside = [other for length, other in every.values() if length == bucket]
        below = sum(other < ms for other in beside) + sum(other == ms for other in beside) / 2
        rank = prefill_rank(storm, rid)
        assert (rank.bucket_tokens, rank.ms, rank.requests) == (bucket, ms, len(beside))
        assert rank.percentile == pytest.approx(100 * below / len(beside), abs=0.06)
    assert prefill_rank(storm, "nobody") is None


def test_few_are_said_to_be_few():
    assert PrefillRank("prefill-0", 2048, 39.21, 289, 87.5).words == (
        "prefill 39.2 ms at prefill-0, p88 of 289 requests of 2–4k tokens"
    )
    assert PrefillRank("p", 64, 1.0, 3, 50.0).words.endswith("of 3 requests of 64–128 tokens, too few to tell (n < 20)")


async def test_both_skins_say_it_of_the_response(here, finished_ledger, finished, tmp_path):
    incident = finished.incidents[0]
    words = prefill_rank(finished, incident.rids[0]).words
    app = app_of(here, tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, app)
        await pilot.press("enter")
        await worked_out(pilot)
        await until(pilot, lambda: f" {words}" in screen_text(app), "the rank")
    source = LedgerSource(finished_ledger, now_us=lambda: NOW, engine="replay")
    web = create_app(source, Gate({"word": Role.VIEWER}), ("127.0.0.1",), tmp_path, patience_s=60.0)
    transport, headers = httpx.ASGITransport(web), {"authorization": "Bearer word"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        assert f'<p id="rank">{words}</p>' in html.unescape((await client.get(f"/incidents/{incident.id}")).text)
