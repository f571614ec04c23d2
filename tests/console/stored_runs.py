"""An engine file, and a state directory of runbooks with runs in it."""

import json
import socket
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
from pilots import NOW_US

from runbooks.engine_client import read_engine_file
from runbooks.lookup import find_runbook
from runbooks.plan import make_plan
from runbooks.states import Conclusion, RunState, StepState
from runbooks.store import RunStore

TODAY = date(2026, 12, 1)


@pytest.fixture
def engine_file(tmp_path) -> Path:
    """An engine that nobody serves: its port is taken and never listened on."""
    with closing(socket.socket()) as door:
        door.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{door.getsockname()[1]}"
        path = tmp_path / "engine.json"
        path.write_text(
            json.dumps(
                {
                    "gateway": url, "prefill": [url], "decode": [url], "ledger": "ledger", "api_keys": {"a": "k", "b": "l"},
                    "hop_key_file": "none",
                }
            )
        )  # fmt: skip
        yield path


@pytest.fixture
def run_state(tmp_path, engine_file) -> Path:
    """One run that waits for a person after its alert was confirmed, and one that found nothing."""
    directory = tmp_path / "runs"
    content = json.loads(engine_file.read_text()) | {
        "gateway": "http://gateway",
        "prefill": ["http://p"],
        "decode": ["http://d"],
    }
    named = tmp_path / "named.json"
    named.write_text(json.dumps(content))
    plan = make_plan(find_runbook("RB-01", TODAY), {}, read_engine_file(named))
    with closing(RunStore(directory)) as store:
        for run_id, states in (
            ("rb01-0000000001", [StepState.CONFIRMED, StepState.CONFIRMED, StepState.CONFIRMED]),
            ("rb01-0000000002", [StepState.CONFIRMED, StepState.FAILED]),
        ):
            t = NOW_US - 3_600_000_000 + int(run_id[-1]) * 60_000_000
            store.create(run_id, plan, t)
            store.move_run(run_id, RunState.RUNNING, t)
            for place, ended in enumerate(states):
                said = ["the smallest pool falls short of the context"] if ended is StepState.FAILED else []
                for move in (StepState.INTENT, StepState.APPLIED):
                    store.move_step(run_id, place, move, t)
                store.move_step(run_id, place, ended, t + 1_000_000, findings=said)
            if StepState.FAILED in states:
                store.move_step(run_id, 3, StepState.WAITING, t + 2_000_000, findings=["clamp the gateway"])
                store.move_run(run_id, RunState.WAITING, t + 2_000_000, Conclusion.CONFIRMED)
            else:
                for place in range(3, len(plan.runbook.steps)):
                    store.move_step(run_id, place, StepState.SKIPPED, t)
                store.move_run(run_id, RunState.FINISHED, t + 2_000_000, Conclusion.NOT_CONFIRMED)
    return directory
