"""`engine`: serve, simulate, logs, demo, faults."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from engine.fault_table import plain_table
from engine.serve_command import USAGE_ERROR, Usage, serve
from engine.simulation.command import simulate
from engine.simulation.logs_command import logs

FAILURE = 1


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """A small prefill/decode engine that carries the KV Witness recorder and can fail in the known ways."""


cli.add_command(serve)
cli.add_command(simulate)
cli.add_command(logs)


@cli.command("faults")
def list_faults() -> None:
    """List the faults that can be switched on: what each needs, what it does, and what is then true."""
    click.echo(plain_table(), nl=False)


@cli.command()
@click.option("--ledger", type=click.Path(path_type=Path), default=Path("demo-ledger"), show_default=True)
def demo(ledger: Path) -> None:
    """The incident, live: with the fault on, then with the defences on."""
    from engine.demo import run_demo  # noqa: PLC0415  it starts an engine

    raise SystemExit(run_demo(ledger))


def main() -> None:
    """Entry point; click's own usage errors exit with 64 as every command here does."""
    try:
        sys.exit(cli.main(standalone_mode=False) or 0)
    except click.exceptions.Abort:
        sys.exit(130)
    except Usage as error:
        error.show()
        sys.exit(USAGE_ERROR)
    except click.UsageError as error:
        error.show()
        sys.exit(USAGE_ERROR)
    except click.ClickException as error:
        error.show()
        sys.exit(FAILURE)


if __name__ == "__main__":
    main()
