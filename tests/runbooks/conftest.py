import json
import random
import sys
from datetime import date
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from runbook_fakes import Behaviour, FakeEngine, RunningFake, StepClock
from runbook_worlds import made_world

from runbooks.engine_client import EngineClient, read_engine_file
from runbooks.executor import Executor
from runbooks.lookup import find_runbook
from runbooks.plan import make_plan
from runbooks.store import RunStore

TODAY = date(2026, 12, 1)
SEED = 20260901


@pytest.fixture
def fake_engine():
    """Factory: fake_engine(context=..., leak=True) gives a served FakeEngine."""
    running = []

    def start(**behaviour):
        running.append(RunningFake(FakeEngine(Behaviour(**behaviour))))
        return running[-1].engine

    yield start
    for fake in running:
        fake.stop()


@pytest.fixture
def run_rb01(tmp_path):
    """Run RB-01 against an engine file's content, in process. Gives (Finished, words said)."""

    def run(engine_file, params=None, state="state", seed=SEED):
        path = tmp_path / "engine.json"
        path.write_text(json.dumps(engine_file))
        engine = read_engine_file(path)
        plan = make_plan(find_runbook("RB-01", TODAY), params or {}, engine)
        store, client, words = RunStore(tmp_path / state), EngineClient(engine), []
        try:
            executor = Executor(store, StepClock(), random.Random(seed), words.append)
            return executor.run(plan, client, None), words
        finally:
            client.close()
            store.close()

    return run


@pytest.fixture
def world(tmp_path):
    """A state directory, an executor over made-up actions, and the list of actions called."""
    made = made_world(tmp_path)
    yield made
    made.store.close()
