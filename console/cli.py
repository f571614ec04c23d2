"""`console` and `console web`.

Invariant: `--help` imports neither torch, textual nor fastapi; words go to stderr, exit code 64 for wrong usage.
"""

# ruff: noqa: PLC0415  imports wait until they are needed, so that --help stays quick
from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from console.core.source import LedgerSource
    from console.core.view import View

EXIT_USAGE = 64
ENGINES = ("auto", "both", "replay", "duckdb")


class Usage(click.ClickException):
    """Wrong usage, or no ledger there: exit code 64."""

    exit_code = EXIT_USAGE


_LEDGER = click.option("--ledger", type=click.Path(path_type=Path), help="The ledger directory, live or finished.")
_ENGINE = click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="auto",
    show_default=True,
    help="What judges; auto: replay while live, then both.",
)

_CACHE = click.option(
    "--cache/--no-cache",
    default=True,
    show_default=True,
    help="Keep what the first screens show in the user's cache directory, and paint from it next time.",
)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@_LEDGER
@_ENGINE
@_CACHE
@click.option("--incident", help="Open this incident at once.")
@click.option(
    "--view", "link", help="Open this view: an address as `y` copies it, such as /incidents?q=severity:critical."
)
@click.option("--plain", is_flag=True, help="Print lines of plain words instead of screens.")
@click.pass_context
def cli(
    context: click.Context,
    ledger: Path | None,
    engine: str,
    cache: bool,
    incident: str | None,
    link: str | None,
    plain: bool,
) -> None:
    """The console for the person on call: which responses read pages that were not theirs, and how one knows.

    Without a command it opens in the terminal. It only reads.
    """
    if context.invoked_subcommand is not None:
        if ledger is not None or incident is not None or link is not None or plain:
            raise Usage("options go behind the command: console web --ledger DIR")
        return
    source = _source(ledger, engine, cache and not plain)
    view = _view(link, incident)
    if plain:
        _print_plain(source, view.incident)
        return
    if not sys.stdout.isatty() or not sys.stdin.isatty():
        raise Usage("this is no terminal; use --plain, or `console web --ledger DIR`")
    from console.tui.app import ConsoleApp

    ConsoleApp(source, view).run()


@cli.command()
@_LEDGER
@_ENGINE
@_CACHE
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0 takes any free port.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File of tokens (16 characters at least), one a line, a role before it.",
)
@click.option("--write", is_flag=True, help="Let operators acknowledge, silence and note; never touches the ledger.")
@click.option(
    "--allow-host", "allowed", multiple=True, help="Another name under which browsers may ask for this server."
)
@click.option(
    "--notify",
    "receivers_file",
    type=click.Path(path_type=Path),
    help="TOML file of receivers that are told of incidents: webhooks, Alertmanager, PagerDuty.",
)
@click.option(
    "--intake-token-file",
    type=click.Path(path_type=Path),
    help="File that holds the token with which alerts may be posted to /api/alerts; without it none are taken.",
)
def web(
    ledger: Path | None,
    engine: str,
    cache: bool,
    host: str,
    port: int,
    token_file: Path | None,
    write: bool,
    allowed: tuple[str, ...],
    receivers_file: Path | None,
    intake_token_file: Path | None,
) -> None:
    """The same in a browser, with charts and the page-ownership map.

    The token comes from --token-file or KVWITNESS_CONSOLE_TOKEN; without either, one is made and its URL printed once.
    A token's role is viewer, operator or forensic; where none stands before it, viewer.
    """
    source = _source(ledger, engine, cache)
    from console.core.triage import state_directory
    from console.web.serve import ServeError, serve

    try:
        serve(
            source, host=host, port=port, token_file=token_file, allowed_hosts=allowed, state=state_directory(), can_write=write,
            receivers_file=receivers_file, intake_token_file=intake_token_file,
        )  # fmt: skip
    except ServeError as error:
        raise Usage(str(error)) from error


@cli.command()
@click.argument("receivers_file", metavar="FILE", type=click.Path(path_type=Path))
def notify(receivers_file: Path) -> None:
    """Send a test message, and its end, to every receiver of FILE. Exits 1 if one did not take it."""
    from console.notify.errors import NotifyError
    from console.notify.receivers import load_receivers
    from console.notify.trial import try_receivers

    try:
        receivers = load_receivers(receivers_file)
    except NotifyError as error:
        raise Usage(str(error)) from error
    tried = try_receivers(receivers, time.time_ns() // 1000)
    for each in tried:
        click.echo(f"{each.name}: {each.words}")
    if not all(each.took for each in tried):
        sys.exit(1)


def _source(ledger: Path | None, engine: str, cache: bool) -> LedgerSource:
    if ledger is None:
        raise Usage("--ledger DIR is missing: give the directory that the engine writes its ledger to")
    from console.core.rollup_store import RollupStore, cache_directory
    from console.core.source import LedgerSource
    from engine.ledger.errors import LedgerError

    store = RollupStore(cache_directory()) if cache else None
    source = LedgerSource(ledger, now_us=lambda: time.time_ns() // 1000, engine=engine, store=store)
    try:
        source.check()
    except LedgerError as error:
        raise Usage(str(error)) from error
    return source


def _view(link: str | None, incident: str | None) -> View:
    """What to open first."""
    from console.core.places import Place
    from console.core.view import View
    from console.core.view_link import BadLink, from_link

    if link is not None and incident is not None:
        raise Usage("--view and --incident both say what to open; give one")
    if incident is not None:
        return View(place=Place.INCIDENT, incident=incident)
    try:
        return from_link(link) if link is not None else View(place=Place.INCIDENTS)
    except BadLink as error:
        raise Usage(f"--view {link}: {error}") from error


def _print_plain(source: LedgerSource, incident_id: str | None) -> None:
    from console.core.plain import incident_detail, incident_list
    from console.core.source import Failure

    snapshot = source.read()
    if isinstance(snapshot, Failure):
        raise Usage(f"{snapshot.what}; {snapshot.remedy}")
    incident = snapshot.incident(incident_id)
    if incident_id is not None and incident is None:
        known = ", ".join(i.id for i in snapshot.incidents) or "none"
        raise Usage(f"no incident {incident_id!r} in {source.path}; it has: {known}")
    lines = incident_list(snapshot) if incident is None else incident_detail(snapshot, incident)
    for line in lines:
        click.echo(line)


def main() -> None:
    """Entry point; click's own usage errors exit with 64 too."""
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_USAGE)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
