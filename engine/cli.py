"""`engine`: serve, demo, faults."""

from __future__ import annotations

import secrets
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine.defences import Defences
from engine.faults import Faults
from engine.simulation.command import simulate

if TYPE_CHECKING:
    from engine.serve import RunningEngine

USAGE_ERROR, FAILURE = 64, 1
MOST_WORKERS = 64


class Usage(click.ClickException):
    """Wrong usage: exit code 64."""

    exit_code = USAGE_ERROR


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """A small prefill/decode engine that carries the KV Witness recorder and can fail in the known ways."""


cli.add_command(simulate)


@cli.command()
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    default=Path("ledger"),
    show_default=True,
    help="Where the ledger goes.",
)
@click.option(
    "--run-dir", type=click.Path(path_type=Path), help="Where engine.json and keys go (default: a temporary directory)."
)
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65535),
    show_default=True,
    help="Gateway port on 127.0.0.1; 0 = any free one.",
)
@click.option("--fault", "faults", multiple=True, help="Switch a fault on (see `engine faults`).")
@click.option(
    "--defence", "defences", multiple=True, metavar="NAME=MODE", help="off, log or enforce; the default is enforce."
)
@click.option(
    "--prefill-pages",
    default=257,
    type=click.IntRange(2),
    show_default=True,
    help="Pages of each prefill pool, with the null block.",
)
@click.option(
    "--decode-pages",
    default=513,
    type=click.IntRange(2),
    show_default=True,
    help="Pages of each decode pool, with the null block.",
)
@click.option(
    "--prefill",
    "prefill_workers",
    default=1,
    type=click.IntRange(1, MOST_WORKERS),
    show_default=True,
    help="Prefill workers, each with a pool of its own.",
)
@click.option(
    "--decode",
    "decode_workers",
    default=1,
    type=click.IntRange(1, MOST_WORKERS),
    show_default=True,
    help="Decode workers, each with a pool of its own.",
)
@click.option(
    "--restart/--no-restart",
    default=False,
    show_default=True,
    help="Start a process that ended by itself again, as a new epoch at the same doors.",
)
@click.option("--page-tokens", default=16, type=click.IntRange(1, 1024), show_default=True, help="Tokens per page.")
@click.option("--context-tokens", default=4096, type=click.IntRange(2), show_default=True, help="Advertised context.")
@click.option(
    "--tenant",
    "--api-key",
    "tenants",
    multiple=True,
    metavar="NAME=KEY",
    help="A tenant and its API key (default: acme and brio).",
)
@click.option(
    "--step-run-ms", default=1000, show_default=True, help="Longest run in one steps row; 0 = a row per pass."
)
@click.option("--truth/--no-truth", default=False, help="Record physical truth beside the ledger (for tests).")
def serve(
    ledger: Path, run_dir: Path | None, port: int, faults: tuple[str, ...], defences: tuple[str, ...],
    prefill_pages: int, decode_pages: int, page_tokens: int, context_tokens: int, tenants: tuple[str, ...], truth: bool,
    step_run_ms: int, prefill_workers: int, decode_workers: int, restart: bool,
) -> None:  # fmt: skip
    """Run a gateway, prefill and decode workers until Ctrl-C."""
    from engine.config import EngineConfig  # noqa: PLC0415  --help is quick
    from engine.serve import EngineError, start_engine  # noqa: PLC0415

    known = _pairs(tenants, "--tenant") or {name: f"key-{name}-{secrets.token_hex(6)}" for name in ("acme", "brio")}
    if len(set(known.values())) < len(known):
        raise Usage("--tenant: two tenants cannot share one API key; it is what tells them apart")
    modes = _pairs(defences, "--defence")
    try:
        Defences.parse(modes)
        for name in faults:
            Faults().switch(name, True)
    except ValueError as error:
        raise Usage(str(error)) from error
    place = run_dir or Path(tempfile.mkdtemp(prefix="kvwitness-run-"))
    config = EngineConfig(
        str(ledger.resolve()), str(place.resolve()), port, prefill_pages, decode_pages, page_tokens, context_tokens,
        faults, modes, truth, step_run_ms, known, prefill_workers, decode_workers,
    )  # fmt: skip
    # While children start, a signal unwinds what was started; afterwards it ends the wait below.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        running = start_engine(config)
    except EngineError as error:
        raise click.ClickException(str(error)) from error
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    click.echo(f"gateway   {running.state['gateway']}/v1")
    click.echo(f"ledger    {ledger.resolve()}")
    click.echo(f"state     {place.resolve()}/engine.json")
    for name, key in known.items():
        click.echo(f"tenant    {name:<10} API key {key}")
    sys.stdout.flush()
    _watch(running, restart, stop)


def _watch(running: RunningEngine, restart: bool, stop: threading.Event) -> None:
    """Until `stop` is set, or what the engine cannot go on without has ended. Raises ClickException then."""
    from engine.supervisor import Supervisor  # noqa: PLC0415

    supervisor = Supervisor(running, restart, lambda words: click.echo(words, err=True))
    failure = None
    while not stop.wait(0.2) and (failure := supervisor.look()) is None:
        pass
    running.stop()
    if failure is not None:
        raise click.ClickException(failure)


def _pairs(values: tuple[str, ...], option: str) -> dict[str, str]:
    found = {}
    for value in values:
        name, separator, rest = value.partition("=")
        if not separator or not name or not rest:
            raise Usage(f"{option} {value!r}: write NAME=VALUE")
        found[name] = rest
    return found


@cli.command("faults")
def list_faults() -> None:
    """List the faults that can be switched on."""
    for name, fault in Faults().by_name().items():
        words = " ".join((type(fault).__doc__ or "").split("\n\n")[0].split())
        click.echo(f"{name:<16} {words}")


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
