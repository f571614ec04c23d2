"""Entry of every child process: `python -m engine.child CONFIG`."""

from __future__ import annotations

import ctypes
import logging
import signal
import sys
from pathlib import Path

from engine.config import ProcessConfig

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve the role that the configuration names."""
    # A parent that is killed cannot stop its children: the kernel tells them.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # until the door is open, see serve_app
    config = ProcessConfig.load(Path(sys.argv[1]))
    logging.basicConfig(level=logging.WARNING, format=f"{config.name} %(levelname)s %(message)s", stream=sys.stderr)
    if config.role == "gateway":
        from engine.gateway_process import run_gateway  # noqa: PLC0415  the gateway needs no torch

        run_gateway(config)
    else:
        from engine.worker import run_worker  # noqa: PLC0415

        run_worker(config)


if __name__ == "__main__":
    main()
