"""The adapters install beside an engine: of this project they import the ledger, and nothing heavy of anybody's."""

import ast
import subprocess
import sys

import pytest
from reading import REPOSITORY

FILES = sorted((REPOSITORY / "engine" / "adapters").glob("*.py"))
ALLOWED = {"numpy", "pyarrow", "msgpack", "zmq"}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, path
            yield node.module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_adapter_imports_the_ledger_the_adapters_and_little_else(path):
    for name in imported(path):
        root = name.split(".")[0]
        assert root in sys.stdlib_module_names | ALLOWED or name.startswith(("engine.ledger.", "engine.adapters.")), (
            name
        )


def test_the_recorder_reads_no_event_streams_and_so_loads_no_zmq():
    loads = "import engine.adapters.sglang_plugin, sys; print({'zmq', 'msgpack', 'torch', 'duckdb'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert done.stdout.strip() == "set()"
