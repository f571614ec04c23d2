"""`console` and `console web`.

Invariant: `--help` imports neither torch, textual nor fastapi; words go to stderr, exit code 64 for wrong usage.
"""

# ruff: noqa: PLC0415  imports wait until they are needed, so that --help stays quick
from __future__ import annotations

import os
import sys
import time
import traceback
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from console.core.source import LedgerSource
    from console.core.view import View

EXIT_USAGE, EXIT_BROKEN = 64, 3
ENGINES = ("auto", "both", "replay", "duckdb")
THEMES = ("dark", "light", "contrast", "ansi", "ansi-light", "plain")


class Usage(click.ClickException):
    """Wrong usage, or no ledger there: exit code 64."""

    exit_code = EXIT_USAGE


_LEDGERS = click.option(
    "--ledger", "ledgers", type=click.Path(path_type=Path), multiple=True,
    help="A ledger directory, live or finished. It can be given several times: :ledger NAME changes between them, :ledger all shows all.",
)  # fmt: skip
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
@_LEDGERS
@_ENGINE
@_CACHE
@click.option("--incident", help="Open this incident at once.")
@click.option(
    "--view", "link", help="Open this view: an address as `y` copies it, such as /incidents?q=severity:critical."
)
@click.option(
    "--saved", metavar="NAME", help="Open this saved view; without it, the one named default if there is one."
)
@click.option("--replay", is_flag=True, help="Play the record from its beginning.")
@click.option("--theme", type=click.Choice(THEMES), help="Colours; NO_COLOR in the environment takes them all away.")
@click.option(
    "--write",
    is_flag=True,
    help="Acknowledge, silence, note, and run runbooks; never touches the ledger. Without it the console only reads.",
)
@click.option(
    "--engine-file", type=click.Path(path_type=Path), help="engine.json of the engine that runbooks are run against."
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    help="Where runbooks keep their runs [default: as `runbook` has it].",
)
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal, so that text can be selected.")
@click.option(
    "--refresh", metavar="LENGTH", help="Look at the ledger as often as that: 2s, 1m; without it every second."
)
@click.option("--no-bell", is_flag=True, help="No bell, title or notice of the terminal when an incident opens.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Signs in ASCII, as a locale without UTF-8 has them anyway.")
@click.option("--plain", is_flag=True, help="Print the view as lines of plain words instead of screens.")
@click.pass_context
def cli(
    context: click.Context,
    ledgers: tuple[Path, ...],
    engine: str,
    cache: bool,
    incident: str | None,
    link: str | None,
    saved: str | None,
    replay: bool,
    theme: str | None,
    write: bool,
    engine_file: Path | None,
    state_dir: Path | None,
    no_mouse: bool,
    refresh: str | None,
    no_bell: bool,
    ascii_only: bool,
    plain: bool,
) -> None:
    """The console for the person on call: which responses read pages that were not theirs, and how one knows.

    Without a command it opens in the terminal. It only reads, unless --write lets you say things of incidents and run runbooks.
    """
    if context.invoked_subcommand is not None:
        if (
            ledgers
            or any(given is not None for given in (incident, link, saved, theme, engine_file, state_dir, refresh))
            or plain
            or no_mouse
            or no_bell
            or ascii_only
            or replay
            or write
        ):
            raise Usage("options go behind the command: console web --ledger DIR")
        return
    sources = _sources(ledgers, engine, cache and not plain)
    view = _view(link, incident, saved, plain)
    if plain:
        if len(sources) > 1:
            raise Usage("--plain prints one ledger; give one")
        if view.ledger not in (None, sources[0].path.resolve().name):
            raise Usage(f"--view is of the ledger {view.ledger}, which is not the one that was given")
        _print_plain(sources[0], view, state_dir)
        return
    if not sys.stdout.isatty() or not sys.stdin.isatty():
        raise Usage("this is no terminal; use --plain, or `console web --ledger DIR`")
    from console.core.run_start import RunSetting
    from console.tui.app import ConsoleApp
    from console.tui.app_base import Refused, Surroundings
    from runbooks.store import default_state_dir

    around = replace(
        Surroundings.of_user(), runs=RunSetting(state_dir or default_state_dir(), write, engine_file),
        refresh_s=_refresh(refresh), mouse=not no_mouse, bell=not no_bell, ascii=ascii_only,
    )  # fmt: skip
    try:
        app = ConsoleApp(sources[0], view, around=around, theme=theme, others=sources[1:], replay=replay)
    except Refused as error:
        raise Usage(str(error)) from error
    app.run(mouse=not no_mouse)


@cli.command()
@_LEDGERS
@_ENGINE
@_CACHE
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0 takes any free port.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File of tokens (16 characters at least), one a line, a role before it.",
)
@click.option(
    "--write",
    is_flag=True,
    help="Let operators acknowledge, silence, note, and run runbooks; never touches the ledger.",
)
@click.option(
    "--engine-file", type=click.Path(path_type=Path), help="engine.json of the engine that runbooks are run against."
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    help="Where runbooks keep their runs [default: as `runbook` has it].",
)
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
    ledgers: tuple[Path, ...],
    engine: str,
    cache: bool,
    host: str,
    port: int,
    token_file: Path | None,
    write: bool,
    engine_file: Path | None,
    state_dir: Path | None,
    allowed: tuple[str, ...],
    receivers_file: Path | None,
    intake_token_file: Path | None,
) -> None:
    """The same in a browser, with charts and the page-ownership map.

    The token comes from --token-file or KVWITNESS_CONSOLE_TOKEN; without either, one is made and its URL printed once.
    A token's role is viewer, operator or forensic; where none stands before it, viewer.
    """
    sources = _sources(ledgers, engine, cache)
    from console.core.ledger_names import ledger_names
    from console.core.run_start import RunSetting
    from console.core.triage import state_directory
    from console.web.serve import ServeError, serve
    from runbooks.store import default_state_dir

    runs = RunSetting(state_dir or default_state_dir(), write, engine_file)
    names = ledger_names([source.path for source in sources])
    try:
        serve(
            dict(zip(names, sources, strict=True)), host=host, port=port, token_file=token_file, allowed_hosts=allowed,
            state=state_directory(), can_write=write, runs=runs, receivers_file=receivers_file, intake_token_file=intake_token_file,
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


def _sources(ledgers: tuple[Path, ...], engine: str, cache: bool) -> list[LedgerSource]:
    sources = [_source(ledger, engine, cache) for ledger in ledgers or (None,)]
    if len({source.path.resolve() for source in sources}) < len(sources):
        raise Usage("one ledger was given twice")
    return sources


def _source(ledger: Path | None, engine: str, cache: bool) -> LedgerSource:
    if ledger is None:
        raise Usage("--ledger DIR is missing: give the directory that the engine writes its ledger to")
    from console.core.rollup_store import RollupStore, cache_directory
    from console.core.source import LedgerSource
    from engine.ledger.errors import LedgerError
    from forensics.kept_judgements import JUDGEMENTS, KeptJudgements, user_cache

    store = RollupStore(cache_directory()) if cache else None
    kept = KeptJudgements(user_cache() / JUDGEMENTS if cache else None)
    source = LedgerSource(ledger, now_us=lambda: time.time_ns() // 1000, engine=engine, store=store, kept=kept)
    try:
        source.check()
    except LedgerError as error:
        raise Usage(str(error)) from error
    return source


def _view(link: str | None, incident: str | None, saved: str | None, plain: bool) -> View:
    """What to open first: what was asked for, else the saved view `default`, else the first screen."""
    from console.core.places import Place
    from console.core.saved_views import DEFAULT, SavedViewError, load_views, views_file
    from console.core.view import View
    from console.core.view_link import BadLink, from_link

    if sum(given is not None for given in (link, incident, saved)) > 1:
        raise Usage("--view, --incident and --saved each say what to open; give one")
    if incident is not None:
        return View(place=Place.INCIDENT, incident=incident)
    try:
        if link is not None:
            return from_link(link)
    except BadLink as error:
        raise Usage(f"--view {link}: {error}") from error
    first = View(place=Place.INCIDENTS) if plain else View()
    try:
        views = load_views(views_file())
    except SavedViewError as error:
        raise Usage(str(error)) from error
    if saved is None:
        return first if plain else views.views.get(DEFAULT, first)
    if saved not in views.views:
        there = ", ".join(sorted(views.views)) or "none"
        raise Usage(f"no saved view {saved!r}: {views.faults.get(saved, f'there are: {there}')}")
    return views.views[saved]


def _refresh(text: str | None) -> int:
    """Seconds between two looks."""
    from console.core.looks import refresh_s
    from console.core.time_range import BadRange

    try:
        return 1 if text is None else refresh_s(text)
    except BadRange as error:
        raise Usage(f"--refresh: {error}") from error


def _print_plain(source: LedgerSource, view: View, state_dir: Path | None) -> None:
    from console.core.as_it_was import snapshot_at
    from console.core.looking import looking
    from console.core.places import Place
    from console.core.plain_screens import plain_runs, plain_screen
    from console.core.run_list import library, run_list, runs_at
    from console.core.source import Failure
    from console.core.standing_rows import with_standing
    from console.core.triage import TriageBook, TriageError, state_directory
    from console.core.what_if import WhatIfError
    from runbooks.store import default_state_dir

    if view.place is Place.RUNS:
        today = datetime.fromtimestamp(source.now_us() / 1e6, UTC).date()
        listed = run_list(state_dir or default_state_dir(), library(today))
        for line in plain_runs(listed if view.replay is None else runs_at(listed, view.moment_us(source.now_us()))):
            click.echo(line)
        return
    snapshot = source.read()
    if isinstance(snapshot, Failure):
        raise Usage(f"{snapshot.what}; {snapshot.remedy}")
    if view.replay is not None and view.cursor_us is not None:
        snapshot = snapshot_at(snapshot, view.cursor_us)
    if view.as_of_us is not None:
        snapshot = snapshot_at(snapshot, view.as_of_us)
    if view.place is Place.INCIDENT and snapshot.incident(view.incident) is None:
        known = ", ".join(i.id for i in snapshot.incidents) or "none"
        raise Usage(f"no incident {view.incident!r} in {source.path}; it has: {known}")
    try:
        entries = TriageBook(state_directory(), source.path, who="", now_us=source.now_us).entries()
        stood = with_standing(snapshot.rollup, entries, view.moment_us(source.now_us()))
        at = looking(stood, view, source.now_us())
        for line in plain_screen(snapshot, at, entries, source.now_us()):
            click.echo(line)
    except (WhatIfError, TriageError) as error:
        raise Usage(str(error)) from error


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
    except Exception:
        traceback.print_exc()
        click.echo("Error: a fault of this program, not an answer: report it with the lines above", err=True)
        sys.exit(EXIT_BROKEN)


if __name__ == "__main__":
    main()
