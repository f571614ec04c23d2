"""`engine serve`: its options, what makes no sense about them, and the time until it is told to stop."""

from __future__ import annotations

import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.config import PREFIX_CACHES
from engine.defences import Defences
from engine.faults import Faults

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.serve import RunningEngine

USAGE_ERROR = 64
MOST_WORKERS = 64
PATH = click.Path(path_type=Path)


class Usage(click.ClickException):
    """Wrong usage: exit code 64."""

    exit_code = USAGE_ERROR


def _option(*names: str, **settings: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(*names, show_default=True, **settings)


@click.command()
@_option("--ledger", type=PATH, default=Path("ledger"), help="Where the ledger goes.")
@_option("--run-dir", type=PATH, help="Where engine.json and keys go (default: a temporary directory).")
@_option("--port", default=0, type=click.IntRange(0, 65535), help="Gateway port on 127.0.0.1; 0 = any free one.")
@_option("--fault", "faults", multiple=True, help="Switch a fault on (see `engine faults`).")
@_option(
    "--defence", "defences", multiple=True, metavar="NAME=MODE", help="off, log or enforce; the default is enforce."
)
@_option(
    "--prefill-pages", default=257, type=click.IntRange(2), help="Pages of each prefill pool, with the null block."
)
@_option("--decode-pages", default=513, type=click.IntRange(2), help="Pages of each decode pool, with the null block.")
@_option(
    "--host-pages", default=0, type=click.IntRange(0),
    help="Pages of each worker's host pool, with the null block: decode retracts requests there, and prefill keeps there "
    "what its prefix cache evicts. 0 = none.",
)  # fmt: skip
@_option(
    "--reserved-tokens", type=click.IntRange(1),
    help="Tokens of an answer for which pages are kept at its start; needs --host-pages (default: all of it).",
)  # fmt: skip
@_option("--transfer-pages", default=8, type=click.IntRange(1), help="Pages in one write batch of a handoff.")
@_option(
    "--prefix-cache", default="off", type=click.Choice(PREFIX_CACHES),
    help="Among whom cached prompt pages may pass on each prefill worker.",
)  # fmt: skip
@_option(
    "--decode-prefix-cache", default="off", type=click.Choice(PREFIX_CACHES),
    help="Among whom cached prompt pages may pass on each decode worker; prefill sends it only the others.",
)  # fmt: skip
@_option(
    "--hold-timeout-ms", default=30_000, type=click.IntRange(1),
    help="How long pages of an aborted handoff wait for its writer to drain.",
)  # fmt: skip
@_option(
    "--on-timeout", default="quarantine", type=click.Choice(["quarantine", "release"]),
    help="What becomes of them then; release proves nothing.",
)  # fmt: skip
@_option("--scrub/--no-scrub", default=False, help="Zero pages before they go back to the pool.")
@_option(
    "--prefill", "prefill_workers", default=1, type=click.IntRange(1, MOST_WORKERS),
    help="Prefill workers, each with a pool of its own.",
)  # fmt: skip
@_option(
    "--decode", "decode_workers", default=1, type=click.IntRange(1, MOST_WORKERS),
    help="Decode workers, each with a pool of its own.",
)  # fmt: skip
@_option(
    "--restart/--no-restart", default=False,
    help="Start a process that ended by itself again, as a new epoch at the same doors.",
)  # fmt: skip
@_option("--page-tokens", default=16, type=click.IntRange(1, 1024), help="Tokens per page.")
@_option("--context-tokens", default=4096, type=click.IntRange(2), help="Advertised context.")
@_option(
    "--tenant", "--api-key", "tenants", multiple=True, metavar="NAME=KEY",
    help="A tenant and its API key; ORGANISATION/TENANT where several are of one (default: acme and brio).",
)  # fmt: skip
@_option("--step-run-ms", default=1000, help="Longest run in one steps row; 0 = a row per pass.")
@_option("--truth/--no-truth", default=False, help="Record physical truth beside the ledger (for tests).")
def serve(ledger: Path, run_dir: Path | None, restart: bool, **settings: Any) -> None:
    """Run a gateway, prefill and decode workers until Ctrl-C."""
    from engine.serve import EngineError, start_engine  # noqa: PLC0415  --help is quick

    place = run_dir or Path(tempfile.mkdtemp(prefix="kvwitness-run-"))
    config = _config(ledger, place, settings)
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
    for name, key in config.tenants.items():
        click.echo(f"tenant    {name:<10} API key {key}")
    sys.stdout.flush()
    _watch(running, restart, stop)


def _config(ledger: Path, place: Path, settings: Mapping[str, Any]) -> EngineConfig:
    """What was asked for. Raises Usage where it makes no sense."""
    from engine.config import EngineConfig  # noqa: PLC0415  --help is quick

    tenants = _pairs(settings["tenants"], "--tenant")
    tenants = tenants or {name: f"key-{name}-{secrets.token_hex(6)}" for name in ("acme", "brio")}
    if len(set(tenants.values())) < len(tenants):
        raise Usage("--tenant: two tenants cannot share one API key; it is what tells them apart")
    modes = _pairs(settings["defences"], "--defence")
    if settings["host_pages"] == 1:
        raise Usage("--host-pages 1: the null block alone holds nothing; use 2 or more, or 0 for no host pool")
    if settings["reserved_tokens"] is not None and not settings["host_pages"]:
        raise Usage("--reserved-tokens needs --host-pages: requests that outgrow the pool are retracted there")
    try:
        Defences.parse(modes)
        for name in settings["faults"]:
            Faults().switch(name, True)
    except ValueError as error:
        raise Usage(str(error)) from error
    given = {**settings, "tenants": tenants, "defences": modes}
    return EngineConfig(ledger=str(ledger.resolve()), run_dir=str(place.resolve()), **given)


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
