"""`forensics ingest`: logs, event streams, scrapes and dumps of engines into a ledger.

Invariant: what reads an engine's files is found through the entry-point group, never imported: forensics knows ledgers
only. Whoever is installed under the group's name is the reader.
"""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import click

from engine.ledger.errors import LedgerError
from forensics.results import EXIT_OK, EXIT_UNKNOWN, EXIT_USAGE

GROUP, READER = "kv_witness.ingest", "folder"


class Ingested(Protocol):
    """What a reader gives back."""

    @property
    def whole(self) -> bool:
        """Whether everything was taken."""

    def words(self) -> list[str]:
        """For people."""

    def as_dict(self) -> dict[str, Any]:
        """For programs."""


class Reader(Protocol):
    """Reads a folder into a new ledger."""

    def __call__(self, folder: Path, ledger: Path, *, zone: str, year: int | None, key: bytes | None) -> Ingested:
        """Raises LedgerError or ValueError; says what is wrong, where, and what to do."""


def find_reader() -> Reader:
    """The installed reader. Raises LedgerError where there is none."""
    found = [entry for entry in entry_points(group=GROUP) if entry.name == READER]
    if not found:
        raise LedgerError(f"nothing is installed under {GROUP}: install kvwitness, which brings engine.adapters")
    reader: Reader = found[0].load()
    return reader


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--ledger", type=click.Path(path_type=Path), required=True, help="New directory for the ledger.")
@click.option("--tz", default="UTC", show_default=True, help="Zone in which the engines wrote their local times.")
@click.option("--year", type=click.IntRange(2000, 2099), help="Year of vLLM's log lines, which carry none.")
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="16 to 64 bytes for pseudonyms; else they are of no use later.",
)
@click.option("--json", "as_json", is_flag=True, help="What was read and what was not, as JSON on stdout.")
def ingest(folder: Path, ledger: Path, tz: str, year: int | None, key_file: Path | None, as_json: bool) -> None:
    """Read what engines left in FOLDER (docs/ingest.md) into a ledger: 0 all of it taken, 2 something skipped or missing."""
    try:
        key = key_file.read_bytes() if key_file is not None else None
        done = find_reader()(folder, ledger, zone=tz, year=year, key=key)
    except (LedgerError, ValueError, OSError) as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(EXIT_USAGE) from error
    for line in done.words():
        click.echo(line, err=True)
    if as_json:
        click.echo(json.dumps(done.as_dict(), indent=2))
    raise SystemExit(EXIT_OK if done.whole else EXIT_UNKNOWN)
