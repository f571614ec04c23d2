"""Serving the web console: token, socket, uvicorn.

Invariant: the socket is bound before anything is printed, so that the printed address is the one that answers; the
token is printed only where it was made here, and once.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from console.core.run_start import RunSetting
from console.core.source import LedgerSource
from console.notify.notifier import Notifier
from console.web.app import create_app
from console.web.errors import ServeError
from console.web.feed import AnyFeed
from console.web.gate import TOKEN_VARIABLE, Gate, load_tokens
from console.web.intake import Intake
from console.web.outside import load_intake, load_notifier
from console.web.several import SeveralLedgers

__all__ = ["ServeError", "serve"]

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
GRACE_SECONDS = 1


class _Server(uvicorn.Server):
    """Ends the event streams first: uvicorn would wait for them until its grace is over, and then tear them."""

    def __init__(self, config: uvicorn.Config, feeds: Sequence[AnyFeed]) -> None:
        super().__init__(config)
        self._feeds = feeds

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let the listeners go, then end."""
        for feed in self._feeds:
            await feed.close()
        await super().shutdown(sockets)


def serve(
    sources: Mapping[str, LedgerSource],
    *,
    host: str,
    port: int,
    token_file: Path | None,
    allowed_hosts: tuple[str, ...],
    state: Path,
    can_write: bool,
    runs: RunSetting,
    receivers_file: Path | None = None,
    intake_token_file: Path | None = None,
) -> None:
    """Serve ledgers, by name, until interrupted. `state`: the user's state directory; `can_write`: what is said of incidents is
    kept in it; `runs`: where runbooks keep theirs, and against what they are run.

    Raises ServeError where the address, a token or the receivers will not do.
    """
    tokens, made = load_tokens(token_file)
    notifiers = _notifiers(sources, state, receivers_file) if receivers_file else {}
    intakes = (
        {n: load_intake(s, state, intake_token_file, tokens) for n, s in sources.items()} if intake_token_file else {}
    )
    hosts = _hosts(host, allowed_hosts, made is not None)
    bound = _bind(host, port)
    real_port = bound.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    url = f"http://{name}:{real_port}/"
    kind = "acknowledgements, silences and notes are kept, runbooks can be run" if can_write else "read only"
    # The address is data: a script reads it from stdout.
    print(f"{url}?token={made}" if made else url, flush=True)
    paths = ", ".join(str(source.path) for source in sources.values())
    print(f"kvwitness console web: {paths}, {kind}; Ctrl-C ends it", file=sys.stderr)
    gate = Gate(tokens, can_write=can_write)
    app, feeds = _application(sources, gate, hosts, state, runs, notifiers, intakes)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=GRACE_SECONDS,
        lifespan="on", ws="none",
    )  # fmt: skip
    try:
        _Server(config, feeds).run(sockets=[bound])
    except KeyboardInterrupt:
        pass
    finally:
        bound.close()


def _notifiers(sources: Mapping[str, LedgerSource], state: Path, receivers_file: Path) -> dict[str, Notifier]:
    of_several = len(sources) > 1
    return {
        name: load_notifier(source, state, receivers_file, name if of_several else "")
        for name, source in sources.items()
    }


def _application(
    sources: Mapping[str, LedgerSource], gate: Gate, hosts: tuple[str, ...], state: Path, runs: RunSetting,
    notifiers: Mapping[str, Notifier], intakes: Mapping[str, Intake],
) -> tuple[FastAPI | SeveralLedgers, Sequence[AnyFeed]]:  # fmt: skip
    """What is served, and its feeds."""
    if len(sources) > 1:
        several = SeveralLedgers(sources, gate, hosts, state, runs=runs, notifiers=notifiers, intakes=intakes)
        return several, several.feeds
    ((name, source),) = sources.items()
    app = create_app(source, gate, hosts, state, runs=runs, notifier=notifiers.get(name), intake=intakes.get(name))
    return app, (app.state.feed,)


def _hosts(host: str, allowed: tuple[str, ...], made: bool) -> tuple[str, ...]:
    """Names under which browsers may ask."""
    if _is_loopback(host):
        return (*LOCAL_NAMES, host, *allowed)
    if made:
        raise ServeError(
            f"{host} is not this machine alone: give a token of your own with --token-file or {TOKEN_VARIABLE}, "
            "and put a proxy that ends TLS in front"
        )
    if host in ("0.0.0.0", "::") and not allowed:
        raise ServeError(f"{host} has no name that browsers could ask for: say --allow-host NAME")
    print(
        f"kvwitness console web: {host} is open to the network and unencrypted; end TLS in front of it", file=sys.stderr
    )
    return (host, *allowed)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bind(host: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(128)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise ServeError(
                f"port {port} on {host} is in use: choose another with --port, or 0 for any free one"
            ) from error
        raise ServeError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
    return bound
