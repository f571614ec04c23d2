"""vLLM servers of a test: started in their own environment with the recorder, stopped by their process group.

Invariant: a server that was started is stopped, whatever happens to the test.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PYTHON = REPOSITORY / ".venv-vllm" / "bin" / "python"
PAGE_TOKENS, BLOCKS, CONTEXT = 32, 48, 512
START_S = 420.0


@dataclass
class Server:
    """One server: where it listens, where its log is, and its process, which leads a group of its own."""

    name: str
    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def is_up(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:]


def wait(what: str, condition: object, deadline_s: float) -> None:
    """Poll until `condition()` holds. Raises TimeoutError saying what did not come."""
    until = time.monotonic() + deadline_s
    while not condition():  # type: ignore[operator]
        if time.monotonic() > until:
            raise TimeoutError(f"{what} within {deadline_s:.0f} s")
        time.sleep(0.2)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(
    model: Path, place: Path, names: Mapping[str, str | None], recorder: Mapping[str, str]
) -> Iterator[dict[str, Server]]:
    """Servers by name, each with its kv_role (None = on its own); `recorder`: more of their environment."""
    servers = {}
    try:
        for ordinal, (name, role) in enumerate(names.items()):
            servers[name] = _start(model, place, name, role, {**recorder, "KVW_ORDINAL": str(ordinal)})
        for server in servers.values():
            wait(f"{server.name} is up", lambda server=server: _up_or_dead(server), START_S)
        yield servers
    except Exception as error:
        for server in servers.values():
            error.add_note(f"{server.name}: {server.tail()}")
        raise
    finally:
        for server in servers.values():
            _stop(server)


def _up_or_dead(server: Server) -> bool:
    if server.process.poll() is not None:
        raise RuntimeError(f"{server.name} ended: {server.tail()}")
    return server.is_up()


def _start(model: Path, place: Path, name: str, role: str | None, recorder: Mapping[str, str]) -> Server:
    port, log = free_port(), place / f"{name}.log"
    command = [
        str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", "induction",
        "--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(CONTEXT), "--block-size", str(PAGE_TOKENS),
        "--num-gpu-blocks-override", str(BLOCKS), "--max-num-seqs", "8", "--dtype", "float32", "--enforce-eager",
        "--shutdown-timeout", "60",
    ]  # fmt: skip
    if role is not None:
        transfer = {"kv_connector": "NixlConnector", "kv_role": role, "engine_id": name, "kv_buffer_device": "cpu"}
        command += ["--kv-transfer-config", json.dumps(transfer)]
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "UCX_TLS": "tcp,self,sm",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
        "PYTHONPATH": str(REPOSITORY), **recorder,
    }  # fmt: skip
    if role is None:
        environment["KVW_NAME"] = name
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=subprocess.STDOUT, env=environment, start_new_session=True, cwd=place
        )
    return Server(name, f"http://127.0.0.1:{port}", log, process)


def _stop(server: Server) -> None:
    """Ask the server to end, so that its recorder closes; after a while, end its whole group."""
    if server.process.poll() is None:
        server.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(60)
    with suppress(ProcessLookupError):
        os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait(10)
