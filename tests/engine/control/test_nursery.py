"""What forks the processes of an engine: how its children end, and what becomes of them when it or its maker ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from live_texts import until

from engine.config import EngineConfig
from engine.nursery import UNKNOWN_EXIT, NurseryError
from engine.serve import start_engine

pytestmark = pytest.mark.engine

MAKER = """
import json, sys
from engine.config import EngineConfig
from engine.serve import start_engine
engine = start_engine(EngineConfig(sys.argv[1], sys.argv[2], tenants={"acme": "key"}))
nursery = engine.nursery._process.pid
print(json.dumps({"nursery": nursery, **{name: child.pid for name, child in engine.children.items()}}), flush=True)
sys.stdin.read()
"""


def alive(pid):
    """Whether a process runs: not gone, and no zombie that nobody has asked about."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def engine(tmp_path, nursery):
    started = start_engine(
        EngineConfig(str(tmp_path / "ledger"), str(tmp_path / "run"), tenants={"acme": "key"}), nursery
    )
    yield started
    started.stop()


@pytest.fixture
def maker(tmp_path):
    """A process that has started an engine, and the ids of its processes by name."""
    command = [sys.executable, "-c", MAKER, str(tmp_path / "ledger"), str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process, json.loads(process.stdout.readline())
        process.kill()


def test_children_bear_their_names_and_give_their_exit_codes(engine):
    assert {Path(f"/proc/{child.pid}/comm").read_text().strip() for child in engine.children.values()} == {
        *engine.children
    }
    decode, gateway = engine.children["decode-0"], engine.children["gateway-0"]
    assert (decode.poll(), decode.wait(0.01)) == (None, None)
    decode.kill()
    gateway.send_signal(signal.SIGTERM)
    assert (decode.wait(), gateway.wait()) == (-signal.SIGKILL, 0)
    assert engine.ended() == {"decode-0": -signal.SIGKILL, "gateway-0": 0}
    gateway.kill()  # the dead hear nothing
    assert gateway.poll() == 0


def test_a_child_that_cannot_read_its_part_says_so_and_ends_alone(engine, nursery, tmp_path, capfd):
    lost = nursery.fork(tmp_path / "nowhere.json")
    assert lost.wait() == 1
    assert engine.ended() == {}


def test_all_end_when_their_maker_is_killed(maker):
    process, pids = maker
    process.kill()
    until(lambda: not any(map(alive, pids.values())), "all its processes to end")


def test_all_end_when_the_nursery_is_killed_and_the_next_start_makes_another(tmp_path):
    engine = start_engine(EngineConfig(str(tmp_path / "ledger"), str(tmp_path / "run"), tenants={"acme": "key"}))
    try:
        former = engine.nursery
        os.kill(former._process.pid, signal.SIGKILL)
        until(lambda: engine.ended() == dict.fromkeys(engine.children, UNKNOWN_EXIT), "all children to end")
        with pytest.raises(NurseryError, match="exit code -9"):
            former.fork(tmp_path / "run" / "decode-0.json")
        engine.start("decode-0")
        assert engine.ended().keys() == {"gateway-0", "prefill-0"}
    finally:
        engine.stop()
