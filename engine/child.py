"""The nursery as a process, and what it forks: `python -m engine.child SOCKET`, see `engine.nursery`.

Invariant: the nursery has one thread and no state but its imports, so a child is as good as one that was started anew.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from engine.config import ProcessConfig
from engine.nursery import FORK

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


def main() -> None:
    """Answer until whoever made this nursery is gone."""
    _end_with_parent()
    # Ctrl-C reaches everybody in a terminal; who made the nursery ends the children in order, and then it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import engine.gateway_process  # noqa: PLC0415
    import engine.worker  # noqa: F401, PLC0415

    gc.freeze()  # what was imported stays shared memory
    with socket.socket(fileno=int(sys.argv[1])) as door, door.makefile("rw") as lines:
        for line in lines:
            what, argument = json.loads(line)
            lines.write(f"{_fork(argument, door) if what == FORK else _exit_of(argument)}\n")
            lines.flush()


def _end_with_parent() -> None:
    # A parent that is killed cannot stop its children: the kernel tells them.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _exit_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork(config: str, door: socket.socket) -> int:
    """Process id of a new child; negative: the number of the error that there was instead."""
    nursery = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        return -(error.errno or 1)
    if pid == 0:
        _live(Path(config), nursery, door)
    return pid


def _live(path: Path, nursery: int, door: socket.socket) -> NoReturn:
    """Serve the role that a configuration names, and exit."""
    code: int | str | None = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT):  # until the door is open, see serve_app
            signal.signal(number, lambda number, _: sys.exit(128 + number))
        _end_with_parent()
        if os.getppid() != nursery:
            sys.exit(128 + signal.SIGTERM)
        os.close(door.fileno())
        config = ProcessConfig.load(path)
        ctypes.CDLL(None).prctl(PR_SET_NAME, config.name.encode())
        logging.basicConfig(level=logging.WARNING, format=f"{config.name} %(levelname)s %(message)s", stream=sys.stderr)
        _serve(config)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def _serve(config: ProcessConfig) -> None:
    from engine.gateway_process import run_gateway  # noqa: PLC0415
    from engine.worker import run_worker  # noqa: PLC0415

    if config.role == "gateway":
        run_gateway(config)
    else:
        run_worker(config)


if __name__ == "__main__":
    main()
