"""`engine logs`: a ledger in, the ordinary logs of the same run out."""

from __future__ import annotations

import sys
from pathlib import Path

import click

USAGE_ERROR = 64


@click.command()
@click.option("--ledger", type=click.Path(path_type=Path), required=True, help="The ledger of a run.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="New directory: one folder per worker.")
def logs(ledger: Path, out: Path) -> None:
    """Write what a SGLang fleet without a recorder would have logged of a run (see docs/ingest.md)."""
    from engine.ledger.reader import LedgerError, read_ledger  # noqa: PLC0415  --help is quick
    from engine.simulation.ordinary_logs import write_ordinary_logs  # noqa: PLC0415

    if out.exists() and any(out.iterdir()):
        click.echo(f"{out}: is not empty; give a new directory", err=True)
        sys.exit(USAGE_ERROR)
    try:
        workers = write_ordinary_logs(read_ledger(ledger), out)
    except LedgerError as error:
        click.echo(str(error), err=True)
        sys.exit(USAGE_ERROR)
    click.echo(f"ordinary logs of {workers} workers in {out}", err=True)
