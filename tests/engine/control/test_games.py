"""Random games of requests, aborts, slow writes and slow messages against both roles, without faults.

The law that matters: no byte is ever posted to, or lands on, a page that its grant no longer owns.
"""

import pytest
from control_bench import PAGE, Bench
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from engine.page_keys import Scope

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 9 * PAGE), st.integers(1, 3 * PAGE)),
        st.tuples(st.just("abort"), st.integers(0, 30), st.sampled_from(["decode", "prefill", "both"])),
        st.tuples(st.sampled_from(["post", "land", "fail", "turn"])),
        st.tuples(st.sampled_from(["hold", "let go"]), st.sampled_from(["mem://prefill", "mem://decode"])),
    ),
    max_size=60,
)


def check_owners(engine):
    """Every page of the write under way, and of those that may still be posted, belongs to its grant."""
    waiting = [batch for batch, _ in engine.transport.queue]
    under_way = [engine.transport.posted[0]] if engine.transport.posted else []
    for batch in (*waiting, *under_way):
        for page in batch.dst_pages:
            assert engine.decode.pool.owner_tag(int(page)) == batch.dst_tag


def play(engine, moves):
    """Returns rid -> (prompt length, output length) of what was asked, and the rids that were given up or failed."""
    asked, disturbed = {}, set()
    engine.transport.auto = False
    for move, *rest in moves:
        if move == "ask":
            rid = f"r{len(asked)}"
            asked[rid] = tuple(rest)
            engine.ask(rid, prompt=rest[0], output=rest[1])
        elif move == "abort" and asked:
            rid = f"r{rest[0] % len(asked)}"
            disturbed.add(rid)
            for role in ("decode", "prefill") if rest[1] == "both" else (rest[1],):
                getattr(engine, role).abort(rid)
        elif move == "post" and engine.transport.posted is None:
            engine.transport.post()
        elif move in ("land", "fail") and engine.transport.posted is not None:
            disturbed |= {engine.rid_of(engine.transport.posted[0].room)} if move == "fail" else set()
            engine.transport.land(error="broken" if move == "fail" else None)
        elif move == "hold":
            engine.network.held.add(rest[0])
        elif move == "let go":
            engine.network.held.discard(rest[0])
        elif move == "turn":
            engine.turn()
        check_owners(engine)
        engine.assert_accounted()
    return asked, disturbed


CACHED = {"decode_scope": Scope.TENANT}
SHAPES = {"plain": {}, "cached": CACHED, "cached, retracting": {**CACHED, "host_pages": 33, "reserved_tokens": 1}}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=MOVES)
def test_no_write_meets_another_owner_and_everything_ends(tmp_path_factory, shape, moves):
    place = tmp_path_factory.mktemp("game") / "ledger"
    engine = Bench(place, prefill_pages=13, decode_pages=17, seal=False, **shape)
    asked, disturbed = play(engine, moves)
    engine.network.held.clear()
    if engine.transport.posted:
        engine.transport.land()
    engine.transport.auto = True
    engine.run(turns=5000)
    for rid, (prompt, output) in asked.items():
        code = engine.code(rid)
        note(f"{rid} {prompt} {output} {code!r}")
        if rid not in disturbed:
            assert code == ""
            assert engine.tokens(rid) == [(prompt + i) % 256 for i in range(1, output + 1)]
        elif code:
            assert code in ("aborted", "transfer_failed")
        assert len(engine.ends(rid, "prefill")) == 1
    for role in (engine.prefill, engine.decode):
        assert role.running() == 0
        counts = role.pool.counts()
        assert counts["free"] + counts["cached"] == role.pool.usable_pages
        assert shape or not counts["cached"]
    engine.assert_accounted()
    if shape:
        assert engine.decode.parts.prefix.tree.evictable_pages == engine.decode.pool.counts()["cached"]
        assert not engine.decode.parts.prefix._asked and not engine.decode.parts.prefix._taken
    assert engine.decode._promised == 0
    assert not engine.prefill.queue.requests
    assert not engine.prefill.queue.grants
    assert not engine.decode.transfers
    ledger = engine.ledger()  # closed, without a gap
    ends = [row for row in ledger.tables["requests"].to_pylist() if row["op"] in ("finish", "abort", "reject")]
    assert len(ends) == 2 * len(asked)
    rows = ledger.tables["pages"].to_pylist()
    for end in ends:
        mine = [row for row in rows if (row["worker"], row["req"]) == (end["worker"], end["req"])]
        assert end["page_rows"] == len(mine)
        assert all(row["seq"] < end["seq"] for row in mine)
