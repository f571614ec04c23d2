"""The `runbook` command. Data goes to stdout, words to stderr; exit codes are those of the whole product."""

from __future__ import annotations

import getpass
import json
import random
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console

from runbooks import report
from runbooks.audit import Head, verify_audit
from runbooks.deadline import SystemClock
from runbooks.engine_client import EngineClient, EngineFile, read_engine_file
from runbooks.errors import RunbookError, UsageError
from runbooks.executor import Executor, Finished
from runbooks.lint import lint_files
from runbooks.lookup import find_runbook, library_files
from runbooks.plan import make_plan, plan_again
from runbooks.store import RunStore, default_state_dir

USAGE, BROKEN = 64, 3

_ENGINE = click.option(
    "--engine", "engine_path", type=click.Path(path_type=Path), help="engine.json of a running engine"
)
_PARAM = click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="a parameter of the runbook")
_FORMAT = click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
_LEDGER = click.option("--ledger", type=click.Path(path_type=Path), help="ledger directory [default: the engine's]")
_BY = click.option("--by", metavar="NAME", help="who does it, for the audit log [default: the user]")
_STATE = click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    help="where runs and the audit log are kept [default: $XDG_STATE_HOME/kvwitness/runbooks]",
)


@click.group()
def cli() -> None:
    """Executable runbooks for the person on call."""


@cli.command("list")
@_FORMAT
def list_command(form: str) -> None:
    """List the runbooks that ship with KV Witness."""
    runbooks, problems = lint_files(library_files(), date.today())
    for problem in problems:
        _say(str(problem))
    if form == "json":
        _print_json([json.loads(runbook.head.model_dump_json(by_alias=True)) for runbook in runbooks])
    else:
        report.print_library(runbooks, _stdout())


@cli.command("lint")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
def lint_command(files: tuple[Path, ...]) -> None:
    """Check runbook files (the library's where none is named). Exits 1 on an error."""
    paths = list(files) or library_files()
    _, problems = lint_files(paths, date.today())
    for problem in problems:
        click.echo(str(problem))
    errors = sum(problem.severity == "error" for problem in problems)
    _say(f"{len(paths)} files, {errors} errors, {len(problems) - errors} warnings")
    raise SystemExit(1 if errors else 0)


@cli.command("plan")
@click.argument("name", metavar="ID")
@_ENGINE
@_LEDGER
@_PARAM
@_FORMAT
def plan_command(name: str, engine_path: Path | None, ledger: Path | None, params: tuple[str, ...], form: str) -> None:
    """Show what a run of a runbook would do, without doing it."""
    engine = _engine(engine_path)
    ledger = ledger or (engine.ledger if engine is not None else None)
    plan = make_plan(find_runbook(name, date.today()), _split(params), engine, ledger)
    if form == "json":
        _print_json(report.plan_data(plan))
    else:
        report.print_plan(plan, _stdout())


@cli.command("run")
@click.argument("name", metavar="ID")
@_ENGINE
@_LEDGER
@_STATE
@_PARAM
@_BY
@_FORMAT
def run_command(
    name: str,
    engine_path: Path | None,
    ledger: Path | None,
    state_dir: Path | None,
    params: tuple[str, ...],
    by: str | None,
    form: str,
) -> None:
    """Run a runbook until it ends or needs a person.

    Exits 0 if the alert is not confirmed, 1 if it is, 2 if that could not be decided, 3 if the audit log is broken.
    """
    engine = _engine(engine_path)
    ledger = ledger or (engine.ledger if engine is not None else None)
    plan = make_plan(find_runbook(name, date.today()), _split(params), engine, ledger)
    with _at_work(state_dir, engine, by) as (executor, client, _):
        finished = executor.run(plan, client, ledger)
    _end(finished, form)


@cli.command("resume")
@click.argument("run_id", metavar="RUN")
@click.option("--answer", metavar="TEXT", help="the answer to the question that the run waits with")
@_ENGINE
@_LEDGER
@_STATE
@_BY
@_FORMAT
def resume_command(
    run_id: str,
    answer: str | None,
    engine_path: Path | None,
    ledger: Path | None,
    state_dir: Path | None,
    by: str | None,
    form: str,
) -> None:
    """Go on with a run that waits for a person or was interrupted, against the same engine and ledger.

    Exits as `run` does.
    """
    engine = _engine(engine_path)
    ledger = ledger or (engine.ledger if engine is not None else None)
    with _at_work(state_dir, engine, by) as (executor, client, store):
        run = store.read(run_id)
        plan = plan_again(find_runbook(run.runbook, date.today()), run.params, engine, ledger)
        finished = executor.resume(run_id, plan, client, ledger, answer)
    _end(finished, form)


@cli.command("abort")
@click.argument("run_id", metavar="RUN")
@click.option("--why", required=True, metavar="TEXT", help="why, for the audit log")
@_STATE
@_BY
@_FORMAT
def abort_command(run_id: str, why: str, state_dir: Path | None, by: str | None, form: str) -> None:
    """End a run that waits for a person or was interrupted. Exits as `run` does."""
    with _at_work(state_dir, None, by) as (executor, _, _):
        finished = executor.abort(run_id, why)
    _end(finished, form)


@cli.command("verify-audit")
@_STATE
@click.option("--expect-head", metavar="COUNT:HASH", help="a head that a run printed; the log has to contain it")
def verify_audit_command(state_dir: Path | None, expect_head: str | None) -> None:
    """Check the audit log's hash chain. Exits 3 if it is broken."""
    try:
        expected = Head.parse(expect_head) if expect_head else None
    except ValueError as error:
        raise UsageError(f"--expect-head: {error}") from error
    directory = state_dir or default_state_dir()
    if not directory.is_dir():
        raise UsageError(f"--state-dir {directory}: does not exist")
    with closing(RunStore(directory)) as store:
        stored = store.audit_head()
        if not store.audit_path.exists() and not stored.count:
            raise UsageError(f"{directory}: no run has been recorded here")
        verify_audit(store.audit_path, stored)
        head = verify_audit(store.audit_path, expected)
    click.echo(str(head))
    _say(f"{head.count} lines, unbroken")


def main() -> None:
    """Entry point: turns errors into one line on stderr and the product's exit codes."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(USAGE)
    except click.Abort:
        _say("interrupted")
        sys.exit(130)
    except RunbookError as error:
        _say(f"runbook: {error}")
        sys.exit(error.exit_code)
    except Exception:
        traceback.print_exc()
        _say(
            "runbook: a fault of this program, not an answer: report it with the lines above; what the run did is kept"
        )
        sys.exit(BROKEN)


@contextmanager
def _at_work(
    state_dir: Path | None, engine: EngineFile | None, by: str | None
) -> Iterator[tuple[Executor, EngineClient | None, RunStore]]:
    """An executor over the state directory, and a client of the engine, until the work is done."""
    with closing(RunStore(state_dir or default_state_dir())) as store:
        client = EngineClient(engine) if engine else None
        try:
            yield Executor(store, SystemClock(), random.SystemRandom(), _say, by=by or getpass.getuser()), client, store
        finally:
            if client is not None:
                client.close()


def _end(finished: Finished, form: str) -> NoReturn:
    """Print a run as it stands, and exit by what it found."""
    if form == "json":
        _print_json(report.run_data(finished))
    else:
        report.print_run(finished, _stdout())
    _say(report.headline(finished.run))
    raise SystemExit(report.exit_code(finished.run))


def _engine(path: Path | None) -> EngineFile | None:
    return None if path is None else read_engine_file(path)


def _split(params: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for text in params:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--param {text}: write NAME=VALUE")
        if name in given:
            raise UsageError(f"--param {name}: is given twice")
        given[name] = value
    return given


def _stdout() -> Console:
    # A pipe gets wide, plain lines; a terminal its own width.
    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200)


def _print_json(data: Any) -> None:
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))


def _say(words: str) -> None:
    click.echo(words, err=True)


if __name__ == "__main__":
    main()
