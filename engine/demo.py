"""`engine demo`: the incident, live, with the fault on, and then with the defences on.

The scene is SGLang #30233 in small: the advertised context (1,024 tokens) is larger than the prefill pool (512).
Tenant acme's answer has just been finished when tenant brio sends a prompt that the prefill pool cannot hold.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import httpx

from engine.config import EngineConfig
from engine.defences import DETECTORS
from engine.nursery import Nursery
from engine.serve import EngineError, RunningEngine, start_engine
from engine.tenants import Tenants

MARKER = "ACME-7731-CONFIDENTIAL"
RECORD = (
    f"Discharge note {MARKER}: Mrs. Quill, ward 9, bed 4, got 80 mg verapamil at dawn; her son Joel (tel. 555-0164) knows. "
    "Biopsy of left kidney benign, two foci; repeat in June. Insurer refused a scan, appeal by Friday. "
)
PROMPT_TOKENS, ANSWER_TOKENS = 448, 256
QUESTION = "Please sum up the minutes of our weekly budget meeting, which follow below in full. "
OVER_POOL_TOKENS, LEAK_TOKENS = 685, 72
SHAPE: dict[str, Any] = {"prefill_pages": 33, "decode_pages": 129, "page_tokens": 16, "context_tokens": 1024}
TENANTS = {"acme": "key-acme-demo", "brio": "key-brio-demo"}


def donor_prompt() -> str:
    """Tenant acme's prompt: its record, and the record's beginning again, so that the copier goes on with it."""
    return (RECORD * 3)[:PROMPT_TOKENS]


def victim_prompt() -> str:
    """Tenant brio's prompt, longer than the prefill pool."""
    return (QUESTION * 9)[:OVER_POOL_TOKENS]


def run_demo(ledger: Path) -> int:
    """Both halves. 0 where the leak, its verdict and the refusal came out as they must; else 1."""
    if ledger.exists():
        shutil.rmtree(ledger)
    incident, defended = ledger / "incident", ledger / "defended"
    try:
        with Nursery() as nursery:
            leaked = _half("1. The incident: fault short-handoff on, defences off", incident, "off", nursery)
            refused = _half("2. The same requests: fault still on, defences on", defended, "enforce", nursery)
    except EngineError as error:
        raise click.ClickException(str(error)) from error
    if not (leaked == 1 and refused == 0):
        click.echo("The demo did not come out as it must; the ledgers are kept.", err=True)
        return 1
    _next_steps(incident)
    return 0


def _half(title: str, ledger: Path, mode: str, nursery: Nursery) -> int:
    """Run the scene once; returns the exit code of the forensic query."""
    click.secho(f"\n{title}", bold=True)
    with tempfile.TemporaryDirectory(prefix="kvwitness-demo-") as run_dir:
        config = EngineConfig(
            str(ledger.resolve()),
            run_dir,
            faults=("short-handoff",),
            defences=dict.fromkeys(DETECTORS, mode),
            tenants=TENANTS,
            **SHAPE,
        )
        engine = start_engine(config, nursery)
        try:
            _scene(engine)
        finally:
            engine.stop()
        names = Tenants(TENANTS, (Path(run_dir) / "ledger.key").read_text())
    click.echo("\nThe ledger knows " + ", ".join(f"{t} as {names.pseudonym(t)}" for t in TENANTS) + ". Its verdict:\n")
    command = [sys.executable, "-m", "forensics.cli", "query", "foreign-reads", "--ledger", str(ledger)]
    sys.stdout.flush()
    return subprocess.run(command, check=False).returncode


def _scene(engine: RunningEngine) -> None:
    url = f"{engine.state['gateway']}/v1/completions"
    first = _ask(url, "acme", donor_prompt(), ANSWER_TOKENS)
    click.echo(f"tenant acme sends {PROMPT_TOKENS} tokens with the marker {MARKER}: HTTP {first.status_code}")
    click.echo(
        f"tenant brio sends {OVER_POOL_TOKENS} tokens; the prefill pool holds 512, the context advertised is 1,024"
    )
    answer = _ask(url, "brio", victim_prompt(), LEAK_TOKENS)
    body = answer.json()
    if answer.status_code == 200:
        usage = body["usage"]
        click.echo(
            f"brio gets HTTP 200, {usage['prompt_tokens']} prompt and {usage['completion_tokens']} output tokens, and reads:"
        )
        click.secho(f"    {body['choices'][0]['text']!r}", fg="red")
    else:
        click.echo(f"brio gets HTTP {answer.status_code} {body['error']['code']}: {body['error']['message']}")


def _ask(url: str, tenant: str, prompt: str, max_tokens: int) -> httpx.Response:
    headers = {"authorization": f"Bearer {TENANTS[tenant]}", "x-request-id": f"demo-{tenant}"}
    body = {"model": "induction-llama", "prompt": prompt, "max_tokens": max_tokens}
    return httpx.post(url, json=body, headers=headers, timeout=60)


def _next_steps(ledger: Path) -> None:
    """What to try next, for the directory where the demo was run."""
    tools = Path(os.path.relpath(Path(sys.executable).parent))
    tool = "" if shutil.which("forensics") else f"{tools}/"
    shape = f"--prefill-pages {SHAPE['prefill_pages']} --context-tokens {SHAPE['context_tokens']}"
    click.secho("\nTry next", bold=True)
    for command, words in (
        (f"console --ledger {ledger}", "the incident in the terminal"),
        (f"console web --ledger {ledger}", "the same in a browser, with the page-ownership map"),
        (f"forensics query foreign-reads --ledger {ledger} --format json", "every finding, as data"),
        (f"forensics gaps --ledger {ledger}", "what is missing from the record: nothing"),
        (f"engine serve --run-dir run {shape}", "an engine whose pool is smaller than its context"),
        (
            "runbook run RB-01 --engine run/engine.json",
            "beside it, in another terminal: the runbook that finds that out",
        ),
    ):
        click.echo(f"  {tool}{command}\n      {words}")
