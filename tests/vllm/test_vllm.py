"""Real vLLM servers with the recorder: `make test-vllm`. Each scene starts a prefill and a decode server, minutes on two cores."""

from dataclasses import replace
from pathlib import Path

import pytest
from scenes import SCENES, Scene, play
from servers import PYTHON

from engine.adapters.vllm_hooks import HOOKS
from engine.ledger.reader import Ledger, read_ledger
from forensics.foreign_reads import foreign_reads

pytestmark = pytest.mark.vllm


def judged(scene: Scene, place: Path) -> Ledger:
    """Play a scene and hold its answers and verdicts to what they must be; its record."""
    if not PYTHON.exists():
        pytest.skip("vLLM's environment is not there; make test-vllm makes it")
    texts = play(scene, place)
    for rid, part in scene.says.items():
        assert part in texts[rid], (rid, texts)
    for server in ("prefill-0", "decode-0"):
        log = (place / f"{server}.log").read_text(errors="replace")
        assert f"KV Witness: {len(HOOKS)} hooks in place, 0 not" in log
    ledger = read_ledger(place / "ledger")
    rows = {row["rid"]: row for row in foreign_reads(ledger, engine="both").responses.to_pylist()}
    found = {
        rid: (rows[rid]["verdict"], rows[rid]["mechanism"] or "", list(rows[rid]["donors"] or ()))
        for rid in scene.verdicts
    }
    assert found == dict(scene.verdicts)
    return ledger


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_is_answered_and_judged_as_it_must_be(name, tmp_path: Path):
    ledger = judged(SCENES[name], tmp_path)
    dead = {gap.worker for gap in ledger.gaps}
    assert dead == ({"decode-0"} if name == "vllm-stub" else set())
    if name == "vllm-stub":
        told = [row["action"] for row in ledger.tables["checks"].to_pylist() if row["detector"] == "engine"]
        assert len(told) == 1 and told[0].startswith("the engine died of ")
        posts = [row for row in ledger.tables["transfers"].to_pylist() if row["op"] == "post"]
        assert [(row["n"], row["asked"]) for row in posts] == [(1, 6)]


def test_servers_of_two_ranks_each_are_judged_as_those_of_one(tmp_path: Path):
    ledger = judged(replace(SCENES["vllm-handoffs"], ranks=2), tmp_path)
    starts = [row for row in ledger.tables["workers"].to_pylist() if row["op"] == "start"]
    assert {(row["worker"], row["tp_size"]) for row in starts} == {("prefill-0", 2), ("decode-0", 2)}
    assert not ledger.gaps
