"""The `runbook` command: streams, formats and exit codes."""

import json
import os
import subprocess
import sys

import pytest

from runbooks.cli import main


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """Run `runbook ARGS` in this process; gives (exit code, stdout, stderr)."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["runbook", *map(str, args)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


@pytest.fixture
def engine_json(tmp_path):
    def write(engine):
        path = tmp_path / "engine.json"
        path.write_text(json.dumps(engine.engine_file()))
        return path

    return write


def test_list_and_lint(command, tmp_path):
    code, out, _ = command("list")
    assert code == 0 and "RB-01" in out and "Pool/context inversion" in out
    code, out, _ = command("list", "--format", "json")
    assert [(entry["id"], entry["schema"]) for entry in json.loads(out)] == [
        (name, "kvwitness.runbook/1") for name in ("RB-01", "RB-05", "RB-10", "RB-13")
    ]
    code, out, err = command("lint")
    assert (code, out) == (0, "") and "4 files, 0 errors" in err
    (tmp_path / "x.md").write_text("# nothing\n")
    code, out, err = command("lint", tmp_path / "x.md")
    assert code == 1 and out.startswith(f"{tmp_path}/x.md:1: error: has no front matter")


def test_plan_shows_what_would_happen_and_asks_nothing(command, fake_engine, engine_json):
    engine = fake_engine()
    code, out, err = command("plan", "RB-01", "--engine", engine_json(engine), "--param", "reserve_tokens=5")
    assert code == 0 and err == ""
    assert "step probe warns: sends up to ten synthetic prompts" in out
    assert "reserve_tokens=5" in out and engine.url("gateway") in out
    code, out, _ = command("plan", "RB-01", "--engine", engine_json(engine), "--format", "json")
    plan = json.loads(out)
    compare = next(step for step in plan["steps"] if step["id"] == "compare")
    assert compare["with"] == {
        "workers": "$steps.read.workers",
        "advertised_tokens": "$steps.read.advertised_tokens",
        "reserve_tokens": 0,
    }
    assert {step["effect"] for step in plan["steps"]} == {"observe"}
    assert engine.bodies == []


def test_run_healthy_as_json(command, fake_engine, engine_json, tmp_path):
    code, out, err = command("run", "RB-01", "--engine", engine_json(fake_engine()), "--format", "json")
    run = json.loads(out)
    assert (code, run["state"], run["conclusion"]) == (0, "finished", "not confirmed")
    assert "warning: sends up to ten synthetic prompts" in err
    assert err.rstrip().endswith("RB-01 1.0.0: not confirmed; finished; nothing was changed")
    assert (tmp_path / "xdg" / "kvwitness" / "runbooks" / "audit.jsonl").exists()
    code, out, err = command("verify-audit", "--expect-head", run["audit_head"])
    assert (code, out.strip()) == (0, run["audit_head"]) and "unbroken" in err


def test_run_confirmed_and_undecided_tables(command, fake_engine, engine_json, tmp_path):
    state = ("--state-dir", tmp_path / "state")
    code, out, _ = command("run", "RB-01", "--engine", engine_json(fake_engine(prefill_pool=512)), *state)
    assert code == 1
    assert "confirmed; waits for a person at step 'clamp'" in out
    assert "does not hold" in out and "prompt_exceeds_pool" in out and "32/32" in out
    code, out, _ = command("run", "RB-01", "--engine", engine_json(fake_engine(metric_shift=16)), *state)
    assert code == 2 and "undecided; waits for a person at step 'clamp'" in out


def test_a_run_is_answered_step_by_step_and_aborted(command, fake_engine, engine_json, tmp_path):
    state = ("--state-dir", tmp_path / "state")
    engine = ("--engine", engine_json(fake_engine(prefill_pool=512)))
    _, out, _ = command("run", "RB-01", *engine, *state, "--format", "json", "--by", "kl")
    run = json.loads(out)["run"]
    code, _, err = command("resume", run, *engine, *state)
    assert code == 64 and "waits at step 'clamp' for an answer: give one with --answer" in err
    code, out, _ = command("resume", run, *engine, *state, "--answer", "clamped", "--format", "json", "--by", "mo")
    steps = {step["id"]: step["state"] for step in json.loads(out)["steps"]}
    assert (code, steps["clamp"], steps["preserve"]) == (1, "confirmed", "waiting")
    other = ("--engine", engine_json(fake_engine()))
    code, _, err = command("resume", run, *other, *state, "--answer", "sealed")
    assert code == 64 and "began with another plan" in err
    code, out, err = command("abort", run, *state, "--why", "the engine is gone", "--by", "mo")
    assert code == 1 and "RB-01 1.0.0: confirmed; aborted" in err
    audit = [json.loads(line) for line in (tmp_path / "state" / "audit.jsonl").read_text().splitlines()]
    said = [(line["event"], line["by"]) for line in audit if "by" in line]
    assert said == [("run.running", "kl"), ("run.running", "mo"), ("step.intent", "mo"), ("run.aborted", "mo")]
    assert command("verify-audit", *state)[0] == 0
    assert command("resume", "rb01-none", *engine, *state)[0] == 64


def test_plans_and_runs_that_read_a_ledger_are_bound_to_it(command, tmp_path):
    state = ("--state-dir", tmp_path / "state")
    plans = []
    for name in ("one", "two"):
        (tmp_path / name / "wal").mkdir(parents=True)
        code, out, _ = command("plan", "RB-10", "--ledger", tmp_path / name, "--format", "json")
        plans.append(json.loads(out)["plan_digest"])
        assert code == 0
    assert plans[0] != plans[1]
    _, out, _ = command("run", "RB-10", "--ledger", tmp_path / "one", *state, "--format", "json")
    run = json.loads(out)
    assert (run["plan_digest"], run["state"]) == (plans[0], "waiting")
    code, _, err = command("resume", run["run"], "--ledger", tmp_path / "two", *state, "--answer", "x")
    assert code == 64 and "the ledger have changed" in err


def test_verify_audit_finds_an_edit(command, fake_engine, engine_json, tmp_path):
    state = ("--state-dir", tmp_path / "state")
    command("run", "RB-01", "--engine", engine_json(fake_engine(prefill_pool=512)), *state)
    path = tmp_path / "state" / "audit.jsonl"
    path.write_text(path.read_text().replace("step.failed", "step.confirmed"))
    code, out, err = command("verify-audit", *state)
    assert (code, out) == (3, "") and "audit.jsonl:7: was changed" in err
    code, _, err = command("run", "RB-01", "--engine", engine_json(fake_engine()), *state)
    assert code == 3 and "was changed" in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run", "RB-77", "--engine", "{engine}"], "there is no runbook 'RB-77'; known: RB-01, RB-05, RB-10, RB-13"),
        (["run", "RB-01"], "needs a running engine: give --engine"),
        (["plan", "RB-01"], "needs a running engine: give --engine"),
        (["run", "RB-01", "--engine", "/nonexistent/engine.json"], "cannot be read (No such file or directory)"),
        (["run", "RB-01", "--engine", "{broken}"], "is no engine file (gateway: Field required"),
        (["run", "RB-01", "--engine", "{engine}", "--param", "reserve_tokens"], "write NAME=VALUE"),
        (["run", "RB-01", "--engine", "{engine}", "--param", "reserve_tokens=x"], "'x' is no integer"),
        (["run", "RB-01", "--engine", "{engine}", "--param", "size=1"], "has no parameter 'size'"),
        (["run", "RB-01", "--engine", "{engine}", "--param", "reserve_tokens=1", "--param", "reserve_tokens=2"],
         "is given twice"),
        (["run", "RB-01", "--engine", "{engine}", "--state-dir", "{broken}"], "cannot be used"),
        (["run", "RB-01", "--wrong"], "No such option"),
        (["verify-audit", "--expect-head", "12"], "is no audit head"),
        (["verify-audit", "--state-dir", "/nonexistent"], "does not exist"),
        (["dance"], "No such command"),
    ],
)  # fmt: skip
def test_wrong_usage_exits_64_and_says_why(command, tmp_path, args, said):
    (tmp_path / "broken.json").write_text('{"prefill": []}')
    (tmp_path / "engine.json").write_text(json.dumps({"gateway": "http://127.0.0.1:9", "prefill": [], "decode": []}))
    names = {"{broken}": tmp_path / "broken.json", "{engine}": tmp_path / "engine.json"}
    code, out, err = command(*[names.get(arg, arg) for arg in args])
    assert (code, out) == (64, "")
    assert said in err


def test_help_needs_no_heavy_import():
    heavy = "('torch', 'textual', 'fastapi', 'duckdb')"
    script = f"import sys\nimport runbooks.cli\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60, env=os.environ
    )
    assert done.stdout.strip() == "[]"
