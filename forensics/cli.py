"""`forensics`: query, gaps, list, show.

Data goes to stdout, words to stderr. Exit codes: 64 usage, 3 broken evidence or disagreeing engines, 1 contaminated
or corrupt, 2 unknown remains, 0 otherwise.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import click

from engine.ledger.errors import LedgerError
from engine.ledger.reader import read_ledger
from forensics.catalogue import Query, load_queries
from forensics.foreign_reads import ENGINES, EnginesDisagree, foreign_reads
from forensics.render import FORMATS, write
from forensics.results import EXIT_BROKEN, EXIT_USAGE, Result, foreign_reads_result, gaps_result
from forensics.window import BadWindow, window, zone


class Usage(click.ClickException):
    """Wrong usage or no ledger there: exit code 64."""

    exit_code = EXIT_USAGE


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"Error: {message}", err=True)
    raise SystemExit(code)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Reads ledgers and says which responses read KV pages that were not theirs."""


_LEDGER = click.option("--ledger", type=click.Path(path_type=Path), required=True, help="The ledger directory.")
_FORMAT = click.option("--format", "fmt", type=click.Choice(FORMATS), default="table", show_default=True)
_OUTPUT = click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to a file instead of stdout.")
_TZ = click.option("--tz", default="UTC", show_default=True, help="Zone of times without an offset, and of the table.")


@cli.command("list")
def list_queries() -> None:
    """List the query library."""
    for query in load_queries():
        click.echo(f"{query.name:<16} {query.question}")


@cli.command()
@click.argument("name")
def show(name: str) -> None:
    """Print a query: its front matter and its SQL."""
    click.echo(_query(name).text)


def _query(name: str) -> Query:
    known = {query.name: query for query in load_queries()}
    if name not in known:
        raise Usage(f"unknown query {name!r}; known: {', '.join(known)} (see `forensics list`)")
    return known[name]


@cli.command()
@click.argument("name")
@_LEDGER
@click.option("--from", "start", help="Responses that started at or after: RFC 3339, a date, or an age such as -15m.")
@click.option("--to", "end", help="Responses that started before.")
@_TZ
@_FORMAT
@_OUTPUT
@click.option("--engine", type=click.Choice(list(ENGINES)), default="both", show_default=True)
@click.option("--all", "all_rows", is_flag=True, help="List clean responses too.")
@click.option("--fail-on", type=click.Choice(["exposed"]), help="Exit 1 also where responses are only exposed.")
@click.option("--explain", is_flag=True, help="Print the SQL instead of running it.")
def query(
    name: str, ledger: Path, start: str | None, end: str | None, tz: str, fmt: str, output: Path | None, engine: str,
    all_rows: bool, fail_on: str | None, explain: bool,
) -> None:  # fmt: skip
    """Run a query of the library on a ledger."""
    chosen = _query(name)
    if explain:
        click.echo(chosen.text)
        return
    try:
        inside = window(start, end, zone(tz), datetime.now(UTC))
        read = read_ledger(ledger)
        if chosen.name == "gaps":
            result = gaps_result(read)
        else:
            reads = foreign_reads(read, engine=engine, window=inside)
            result = foreign_reads_result(read, reads, all_rows=all_rows, fail_on_exposed=fail_on == "exposed")
            result.envelope["engine"] = engine
    except (BadWindow, LedgerError) as error:
        raise Usage(str(error)) from error
    except EnginesDisagree as error:
        _fail(f"{error}; no verdict of this ledger can be trusted, keep it and report both findings", EXIT_BROKEN)
    _hand_out(result, fmt, output, tz)


@cli.command()
@_LEDGER
@_TZ
@_FORMAT
@_OUTPUT
def gaps(ledger: Path, tz: str, fmt: str, output: Path | None) -> None:
    """Say which rows are missing, whose tails are open, and which files do not hold."""
    try:
        zone(tz)
        result = gaps_result(read_ledger(ledger))
    except (BadWindow, LedgerError) as error:
        raise Usage(str(error)) from error
    _hand_out(result, fmt, output, tz)


def _hand_out(result: Result, fmt: str, output: Path | None, tz: str) -> None:
    try:
        if output is not None:
            with open(output, "wb") as file:
                write(result.rows, fmt, file, envelope=result.envelope, columns=result.columns, tz=zone(tz))
        else:
            write(result.rows, fmt, sys.stdout.buffer, envelope=result.envelope, columns=result.columns, tz=zone(tz))
    except OSError as error:
        raise Usage(f"{output}: {error.strerror}") from error
    for line in result.words:
        click.echo(line, err=True)
    raise SystemExit(result.exit_code)


def main() -> None:
    """Entry point; click's own usage errors exit with 64."""
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main()
