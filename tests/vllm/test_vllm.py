"""Real vLLM servers with the recorder: `make test-vllm`. Each scene starts a prefill and a decode server, minutes on two cores."""

from pathlib import Path

import pytest
from scenes import SCENES, play
from servers import PYTHON

from engine.adapters.vllm_hooks import HOOKS
from engine.ledger.reader import read_ledger
from forensics.foreign_reads import foreign_reads

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_is_answered_and_judged_as_it_must_be(name, tmp_path: Path):
    if not PYTHON.exists():
        pytest.skip("vLLM's environment is not there; make test-vllm makes it")
    scene = SCENES[name]
    texts = play(scene, tmp_path)
    for rid, part in scene.says.items():
        assert part in texts[rid], (rid, texts)
    for server in ("prefill-0", "decode-0"):
        log = (tmp_path / f"{server}.log").read_text(errors="replace")
        assert f"KV Witness: {len(HOOKS)} hooks in place, 0 not" in log
    ledger = read_ledger(tmp_path / "ledger")
    dead = {gap.worker for gap in ledger.gaps}
    assert dead == ({"decode-0"} if name == "vllm-stub" else set())
    if name == "vllm-stub":
        told = [row["action"] for row in ledger.tables["checks"].to_pylist() if row["detector"] == "engine"]
        assert len(told) == 1 and told[0].startswith("the engine died of ")
        posts = [row for row in ledger.tables["transfers"].to_pylist() if row["op"] == "post"]
        assert [(row["n"], row["asked"]) for row in posts] == [(1, 6)]
    judged = {row["rid"]: row for row in foreign_reads(ledger, engine="both").responses.to_pylist()}
    found = {
        rid: (judged[rid]["verdict"], judged[rid]["mechanism"] or "", list(judged[rid]["donors"] or ()))
        for rid in scene.verdicts
    }
    assert found == dict(scene.verdicts)
