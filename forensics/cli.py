"""`forensics`: query, explain, ingest, bound, gaps, list, show, diff.

Data goes to stdout, words to stderr. Exit codes: 64 usage, 3 broken evidence or disagreeing engines, 1 contaminated
or corrupt, 2 unknown remains, 0 otherwise.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import IO, NoReturn

import click

from engine.ledger.errors import LedgerError
from engine.ledger.reader import read_ledger
from forensics.ask import Asked, ask
from forensics.bound import NAME as BOUND
from forensics.bound import bound as bounds
from forensics.catalogue import Query, load_queries
from forensics.explain import NoResponse
from forensics.explain import explain as explained
from forensics.foreign_reads import ENGINES, EnginesDisagree, NotJudged
from forensics.ingest import ingest
from forensics.kept_judgements import KeptJudgements, user_cache
from forensics.library import Limits, QueryStopped
from forensics.parameters import BadParameter
from forensics.progress import stages
from forensics.pseudonyms import NAMED, BadCaseKey, read_case_key
from forensics.render import FORMATS, PRINTED, write
from forensics.result_diff import NoResult, diff, read_result
from forensics.results import EXIT_BROKEN, EXIT_FOUND, EXIT_OK, EXIT_UNKNOWN, EXIT_USAGE, Result
from forensics.safe_text import safe_text
from forensics.window import BadWindow, zone


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
_CASE = click.option(
    "--case-key",
    "case",
    type=click.Path(path_type=Path),
    help="Requests and tenants stand under the pseudonyms of this key file.",
)
_ANEW = click.option("--anew", is_flag=True, help="Judge anew, though a judgement of these very rows is kept.")
_TZ = click.option("--tz", default="UTC", show_default=True, help="Zone of times without an offset, and of the table.")


@cli.command("list")
def list_queries() -> None:
    """List the query library."""
    for query in load_queries():
        click.echo(f"{query.name:<22} {query.question}")


@cli.command()
@click.argument("name")
def show(name: str) -> None:
    """Print a query: its front matter and its SQL."""
    click.echo(_query(name).text)


def _query(name: str) -> Query:
    known = {query.name: query for query in load_queries()}
    if name not in known:
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise Usage(f"unknown query {name!r}; {meant}See `forensics list`")
    return known[name]


@cli.command()
@click.argument("name")
@_LEDGER
@click.option("--from", "start", help="Window, from: RFC 3339, a date, or an age such as -15m.")
@click.option("--to", "end", help="Window, up to and without.")
@click.option("-p", "--param", "given", multiple=True, metavar="NAME=VALUE", help="A parameter (see `forensics show`).")
@_TZ
@_FORMAT
@_OUTPUT
@_CASE
@click.option("--engine", type=click.Choice(list(ENGINES)), default="both", show_default=True)
@_ANEW
@click.option("--all", "all_rows", is_flag=True, help="foreign-reads: list clean responses too.")
@click.option(
    "--fail-on", type=click.Choice(["exposed"]), help="foreign-reads: exit 1 also where responses are only exposed."
)
@click.option("--limit", type=click.IntRange(1), help="Most rows of a table (table, md); other formats hold all.")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.option("--memory", default="4GB", show_default=True, help="Most memory of one query, such as 512MB.")
@click.option("--timeout", type=click.FloatRange(min=0.001), default=600.0, show_default=True, help="Most seconds.")
@click.option("--explain", is_flag=True, help="Print the SQL instead of running it.")
def query(
    name: str, ledger: Path, start: str | None, end: str | None, given: tuple[str, ...], tz: str, fmt: str,
    output: Path | None, case: Path | None, engine: str, all_rows: bool, fail_on: str | None, limit: int | None,
    threads: int, memory: str, timeout: float, explain: bool, anew: bool,
) -> None:  # fmt: skip
    """Run a query of the library on a ledger."""
    chosen = _query(name)
    if explain:
        click.echo(chosen.text)
        return
    asked = Asked(
        _given(given, start, end), tz, engine, all_rows, fail_on == "exposed", Limits(threads, memory, timeout),
        _kept(anew),
    )  # fmt: skip
    try:
        with stages() as tell:
            result = ask(chosen, ledger, asked, tell=tell)
        result = _limited(_covered(result, case), limit if fmt in PRINTED else None)
    except (BadWindow, BadParameter, BadCaseKey, LedgerError) as error:
        raise Usage(str(error)) from error
    except (QueryStopped, NotJudged) as error:
        _fail(str(error), EXIT_BROKEN)
    except EnginesDisagree as error:
        _fail(f"{error}; no verdict of this ledger can be trusted, keep it and report both findings", EXIT_BROKEN)
    _hand_out(result, fmt, output, tz)


def _kept(anew: bool) -> KeptJudgements:
    return KeptJudgements(None if anew else user_cache() / "judgements")


def _given(pairs: tuple[str, ...], start: str | None, end: str | None) -> dict[str, str]:
    """Parameters as they were typed."""
    given = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise Usage(f"-p {pair}: write NAME=VALUE, such as -p rid=r-1")
        given[name] = value
    return given | {name: value for name, value in (("from", start), ("to", end)) if value is not None}


cli.add_command(ingest)


@cli.command()
@_LEDGER
@click.option("--from", "start", help="Window, from: RFC 3339, a date, or an age such as -15m.")
@click.option("--to", "end", help="Window, up to and without.")
@click.option("--without", type=click.File(), help="A file of rids to leave out, one a line: an operator's own tests.")
@click.option(
    "-p", "--param", "given", multiple=True, metavar="NAME=VALUE", help="A parameter (see `forensics show bound`)."
)
@_TZ
@_FORMAT
@_OUTPUT
@click.option("--limit", type=click.IntRange(1), help="Most rows of a table (table, md); other formats hold all.")
def bound(
    ledger: Path, start: str | None, end: str | None, without: IO[str] | None, given: tuple[str, ...], tz: str, fmt: str,
    output: Path | None, limit: int | None,
) -> None:  # fmt: skip
    """Bound the exposed responses where no recorder stood by: 0 none possible, 2 some; never a verdict."""
    parameters = _given(given, start, end)
    if without is not None:
        parameters["without"] = ",".join(line.strip() for line in without if line.strip())
    try:
        with stages() as tell:
            result = bounds(_query(BOUND), ledger, Asked(parameters, tz), tell)
    except (BadWindow, BadParameter, LedgerError) as error:
        raise Usage(str(error)) from error
    except QueryStopped as error:
        _fail(str(error), EXIT_BROKEN)
    _hand_out(_limited(result, limit if fmt in PRINTED else None), fmt, output, tz)


@cli.command()
@_LEDGER
@_TZ
@_FORMAT
@_OUTPUT
def gaps(ledger: Path, tz: str, fmt: str, output: Path | None) -> None:
    """Say which rows are missing, whose tails are open, and which files do not hold."""
    try:
        result = ask(_query("gaps"), ledger, Asked(tz=tz))
    except (BadWindow, LedgerError) as error:
        raise Usage(str(error)) from error
    _hand_out(result, fmt, output, tz)


@cli.command()
@click.argument("rid")
@_LEDGER
@_TZ
@_FORMAT
@_OUTPUT
@_CASE
@click.option("--engine", type=click.Choice(list(ENGINES)), default="both", show_default=True)
@_ANEW
@click.option("--limit", type=click.IntRange(1), help="Most rows of a table (table, md); other formats hold all.")
def explain(
    rid: str, ledger: Path, tz: str, fmt: str, output: Path | None, case: Path | None, engine: str, anew: bool,
    limit: int | None,
) -> None:  # fmt: skip
    """Show which chain of events proves what is said of a response, in order, the offending row marked."""
    try:
        with stages() as tell:
            asked = Asked(tz=tz, engine=engine, kept=_kept(anew))
            result = explained(_revealed(rid, ledger, case), ledger, asked, tell)
        result = _limited(_covered(result, case), limit if fmt in PRINTED else None)
    except (BadWindow, BadCaseKey, LedgerError, NoResponse) as error:
        raise Usage(str(error)) from error
    except (QueryStopped, NotJudged) as error:
        _fail(str(error), EXIT_BROKEN)
    except EnginesDisagree as error:
        _fail(f"{error}; no verdict of this ledger can be trusted, keep it and report both findings", EXIT_BROKEN)
    _hand_out(result, fmt, output, tz)


@cli.command()
@click.argument("pseudonyms", nargs=-1, required=True)
@_LEDGER
@click.option("--case-key", "case", type=click.Path(path_type=Path), required=True, help="The key file of the case.")
def reveal(pseudonyms: tuple[str, ...], ledger: Path, case: Path) -> None:
    """Say which requests and tenants stand behind pseudonyms of a case: 0 all known, 2 some not."""
    try:
        found = read_case_key(case).reveal(read_ledger(ledger), pseudonyms)
    except (BadCaseKey, LedgerError) as error:
        raise Usage(str(error)) from error
    for pseudonym in pseudonyms:
        click.echo(safe_text(f"{pseudonym} {found.get(pseudonym, '?')}"))
    raise SystemExit(EXIT_OK if set(pseudonyms) <= set(found) else EXIT_UNKNOWN)


def _covered(result: Result, case: Path | None) -> Result:
    """A result under the pseudonyms of a case; its words name nobody then."""
    if case is None:
        return result
    key = read_case_key(case)
    response = result.envelope.get("response")
    envelope = (
        result.envelope
        if response is None
        else {name: each for name, each in result.envelope.items() if name != "response"}
    )
    parameters = {name: value if name not in NAMED else "(covered)" for name, value in envelope["parameters"].items()}
    words = result.words if response is None else [f"{response['verdict']} ({response['proof']})", *result.words[1:]]
    return replace(
        result, rows=key.cover(result.rows), words=words, envelope={**envelope, "parameters": parameters, "case": True}
    )


def _limited(result: Result, limit: int | None) -> Result:
    """The first rows of a result, and how many there are."""
    if limit is None or len(result.rows) <= limit:
        return result
    return replace(
        result, rows=result.rows.slice(0, limit), words=[f"the first {limit} of {len(result.rows)} rows", *result.words]
    )


def _revealed(rid: str, ledger: Path, case: Path | None) -> str:
    """The request that is meant, where it is named by its pseudonym."""
    return read_case_key(case).reveal(read_ledger(ledger), [rid]).get(rid, rid) if case is not None else rid


@cli.command("diff")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
def diff_results(first: Path, second: Path) -> None:
    """Compare two results of one query, written with --format json: 0 equal rows, 1 not."""
    try:
        found = diff(read_result(first), read_result(second))
    except NoResult as error:
        raise Usage(str(error)) from error
    for sign, rows in (("-", found.only_first), ("+", found.only_second)):
        for row in rows:
            click.echo(f"{sign} {json.dumps(row)}")
    for name, (one, other) in found.envelope.items():
        click.echo(f"{name}: {json.dumps(one)} -> {json.dumps(other)}", err=True)
    click.echo(f"{len(found.only_first)} rows only in {first}, {len(found.only_second)} only in {second}", err=True)
    raise SystemExit(EXIT_FOUND if found.only_first or found.only_second else EXIT_OK)


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
        click.echo(safe_text(line), err=True)
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
    except Exception:
        traceback.print_exc()
        click.echo(
            "Error: a fault of this program, not an answer: keep the ledger, and report it with the lines above",
            err=True,
        )
        sys.exit(EXIT_BROKEN)


if __name__ == "__main__":
    main()
