"""Runbooks in the web console: who may ask, what is asked, and what comes of it."""

import asyncio
import json
import re
import time
from contextlib import closing

import httpx
import pytest
from stored_runs import TODAY

from console.core.run_list import library, run_list
from console.core.run_start import RunSetting
from console.core.source import LedgerSource
from console.web.app import create_app
from console.web.gate import Gate, Role
from runbooks.engine_client import read_engine_file
from runbooks.lookup import find_runbook
from runbooks.plan import make_plan
from runbooks.states import RunState
from runbooks.store import RunStore

NOW = 1_790_000_060_000_000
TOKENS = {"token-of-a-viewer": Role.VIEWER, "token-of-an-operator": Role.OPERATOR}
VIEWER, OPERATOR = TOKENS
DEADLINE_SECONDS = 60


def app_of(path, state, setting, *, can_write=True):
    source = LedgerSource(path, now_us=lambda: NOW, engine="replay")
    return create_app(source, Gate(TOKENS, can_write=can_write), ("127.0.0.1",), state, runs=setting, patience_s=60.0)


def client_of(app, token=OPERATOR) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", headers=headers)


async def until(client, words: str) -> str:
    """The page of runs, once it says so."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        text = (await client.get("/runs")).text
        if words in text:
            return text
        assert time.monotonic() < deadline, f"still waiting for {words!r} in:\n{text}"
        await asyncio.sleep(0.05)


async def test_a_run_is_started_answered_and_aborted_in_the_operators_name(here, tmp_path, engine_file):
    setting = RunSetting(tmp_path / "new", True, engine_file)
    async with client_of(app_of(here, tmp_path, setting)) as client:

        async def ask(**form) -> httpx.Response:
            return await client.post("/runs", data=form)

        assert "Start RB-01" in (await client.get("/runs")).text
        answer = await ask(act="run", subject="RB-01", typed="RB-01", **{"param.reserve_tokens": "7"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/runs#run-RB-01")
        text = await until(client, "waits for a person at clamp")
        run = re.search(r'id="run-(rb01-[0-9a-f]+)"', text)[1]
        assert run_list(setting.directory, ()).run(run).params["reserve_tokens"] == 7
        assert "Answer clamped or drained" in text
        await until(client, "(exit code 2)")  # its engine does not answer: undecided
        assert (await ask(act="answer", subject=run, words="maybe")).headers["location"] == f"/runs#run-{run}"
        text = await until(client, "waits to be resumed or aborted")
        assert "answered maybe" in text
        await until(client, f"{run}: RB-01 1.0.0: undecided; waits to be resumed or aborted (exit code 2)")
        await ask(act="resume", subject=run, typed="preserve")
        await until(client, "waits for a person at preserve")
        await until(client, "waits for a person at step &#39;preserve&#39; (exit code 2)")
        await ask(act="abort", subject=run, words="<b>wrong</b> engine")
        await until(client, "<td>aborted; could not be decided")
    audit = [json.loads(line) for line in (setting.directory / "audit.jsonl").read_text().splitlines()]
    assert len({line["by"] for line in audit if "by" in line}) == 1
    assert all(line["by"].startswith("operator-") for line in audit if "by" in line)
    assert OPERATOR not in json.dumps(audit)
    assert [line["why"] for line in audit if line["event"] == "run.aborted"] == ["<b>wrong</b> engine"]


RUN = "rb01-0000000002"


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"act": "run", "subject": "RB-01", "typed": "RB-02"}, "RB-01 was not written: nothing was started"),
        ({"act": "run", "subject": "RB-99", "typed": "RB-99"}, "there is no runbook RB-99"),
        ({"act": "run", "subject": "RB-01", "typed": "RB-01", "param.reserve_tokens": "x"}, "is no integer"),
        ({"act": "run", "subject": "RB-01", "typed": "RB-01", "param.size": "1"}, "has no parameter size"),
        ({"act": "answer", "subject": RUN, "words": ""}, "write one line"),
        ({"act": "answer", "subject": "rb01-0000000001", "words": "x"}, "is finished"),
        ({"act": "resume", "subject": RUN, "typed": "clamp"}, "waits at step &#39;clamp&#39; for an answer"),
        ({"act": "abort", "subject": RUN}, "write one line"),
        ({"act": "abort", "subject": "<script>"}, "there is no run &lt;script&gt; here"),
        ({"act": "delete", "subject": RUN}, "nothing is asked by"),
    ],
)
async def test_what_cannot_be_done_is_said_and_starts_nothing(here, tmp_path, run_state, engine_file, form, words):
    app = app_of(here, tmp_path, RunSetting(run_state, True, engine_file))
    before = run_list(run_state, library(TODAY))
    async with client_of(app) as client:
        answer = await client.post("/runs", data=form)
        assert answer.status_code == 400
        assert words in answer.text
    assert run_list(run_state, library(TODAY)) == before


async def test_nothing_is_asked_unless_it_is_switched_on_and_the_role_may(here, tmp_path, run_state, engine_file):
    form = {"act": "abort", "subject": RUN, "words": "no"}
    for can_write, may_start, token, status in (
        (False, False, OPERATOR, 403),
        (True, True, VIEWER, 403),
        (True, True, None, 401),
        (True, False, OPERATOR, 400),
    ):
        app = app_of(here, tmp_path, RunSetting(run_state, may_start, engine_file), can_write=can_write)
        async with client_of(app, token) as client:
            assert (await client.post("/runs", data=form)).status_code == status
            if token is not None:
                page = (await client.get("/runs")).text
                assert "waits for a person at clamp" in page
                assert 'action="/runs"' not in page
    app = app_of(here, tmp_path, RunSetting(run_state, True, engine_file))
    async with client_of(app, None) as client:
        await client.get(f"/?token={OPERATOR}")
        assert (await client.post("/runs", data=form)).status_code == 403  # a cookie alone
        evil = {"origin": "https://evil.example"}
        word = re.search(r'name="word" value="([0-9a-f]+)"', (await client.get("/runs")).text)[1]
        assert (await client.post("/runs", data=form | {"word": word}, headers=evil)).status_code == 403
    assert run_list(run_state, ()).run(RUN).state is RunState.WAITING


async def test_news_of_a_run_is_news_of_the_page(here, tmp_path, run_state):
    app = app_of(here, tmp_path, RunSetting(run_state))
    feed = app.state.feed
    await feed.fresh()
    mark = feed.mark
    (run_state / "audit.jsonl").write_text("x")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while feed.mark == mark:
        assert time.monotonic() < deadline
        await feed.fresh()
        await asyncio.sleep(0.05)
    async with client_of(app) as client:
        assert "AUDIT LOG BROKEN" in (await client.get("/runs")).text
    await feed.close()


async def test_a_file_of_runs_from_a_replay_knows_none_that_came_later(here, tmp_path, run_state, engine_file):
    with closing(RunStore(run_state)) as store:
        plan = make_plan(find_runbook("RB-01", TODAY), {}, read_engine_file(engine_file))
        store.create("rb01-later", plan, NOW)
    async with client_of(app_of(here, tmp_path / "state", RunSetting(run_state))) as client:
        await client.get("/incidents")

        async def runs(query: str) -> set[str]:
            lines = (await client.get(f"/tables/runs.jsonl{query}")).text.splitlines()
            return {json.loads(line)["run"] for line in lines}

        now, past = await runs(""), await runs("?mode=replay&at=2026-09-21T14:13:20.5Z")
    assert now - past == {"rb01-later"}
    assert past
