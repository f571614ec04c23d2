"""Running requests that give their pages up for others, and run on later."""

import pytest
from control_bench import PAGE, Bench


@pytest.fixture
def engine(tmp_path):
    made = Bench(tmp_path / "ledger", decode_pages=9, host_pages=17, reserved_tokens=1)
    yield made
    made.close()


def test_a_request_is_retracted_for_another_and_its_answer_is_whole(engine):
    engine.ask("r1", prompt=3 * PAGE, output=12)
    engine.ask("r2", prompt=3 * PAGE, output=12)
    engine.run()
    for rid in ("r1", "r2"):
        assert engine.code(rid) == "" and len(engine.tokens(rid)) == 12
    assert engine.decode.pool.counts()["free"] == engine.decode.parts.host.counts()["free"] * 8 // 16
    pauses, resumes = engine.rows("requests", "decode", op="pause"), engine.rows("requests", "decode", op="resume")
    assert len(pauses) == len(resumes) >= 1
    assert {row["reason"] for row in pauses} == {"retracted"}
    req = pauses[0]["req"]
    moves = [row for row in engine.rows("transfers", "decode", op="done") if row["req"] == req]
    assert {(row["src_pool"], row["dst_pool"], row["peer"]) for row in moves} == {
        ("kv", "host", "decode-0"), ("host", "kv", "decode-0"),
    }  # fmt: skip
    out = [row for row in moves if row["dst_pool"] == "host"]
    freed = [row for row in engine.rows("pages", "decode", op="free", cause="retract") if row["req"] == req]
    assert sorted(p for row in out for p in row["src_pages"]) == sorted(p for row in freed for p in row["pages"])
    assert max(row["seq"] for row in out) < min(row["seq"] for row in freed)  # copied before anybody else can have them


def test_nothing_runs_between_pause_and_resume(engine):
    engine.ask("r1", prompt=3 * PAGE, output=12)
    engine.ask("r2", prompt=3 * PAGE, output=12)
    engine.run()
    (pause,), (resume,) = engine.rows("requests", "decode", op="pause"), engine.rows("requests", "decode", op="resume")
    binds = [row["seq"] for row in engine.rows("pages", "decode", op="bind") if row["req"] == pause["req"]]
    assert not [seq for seq in binds if pause["seq"] < seq < resume["seq"] - 1]
    alone = [works for kind, _, works in engine.executors["decode"].passes if kind == "decode" and len(works) == 1]
    assert {works[0].req for works in alone} >= {3 - pause["req"]}


def test_a_retracted_request_can_be_aborted(engine):
    engine.ask("r1", prompt=3 * PAGE, output=12)
    engine.ask("r2", prompt=3 * PAGE, output=12)
    engine.until(lambda: engine.decode.retraction.waiting)
    request = engine.decode.retraction.waiting[0]
    engine.decode.abort(request.given.rid)
    engine.run()
    assert engine.code(request.given.rid) == "aborted"
    assert engine.decode.parts.host.counts()["free"] == 16
    assert engine.decode.pool.counts()["free"] == 8


def test_without_room_in_the_host_pool_the_answer_ends_with_an_error(tmp_path):
    engine = Bench(tmp_path / "ledger", decode_pages=9, host_pages=2, reserved_tokens=1)
    engine.ask("r1", prompt=3 * PAGE, output=12)
    engine.ask("r2", prompt=3 * PAGE, output=12)
    engine.run()
    codes = sorted(engine.code(rid) for rid in ("r1", "r2"))
    assert codes == ["", "out_of_pages"]
    engine.close()
