"""What goes wrong in a command itself is no verdict: it never ends with the exit code of one."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import forensics.ask as ask_module
import forensics.cli as cli_module
import forensics.foreign_reads as foreign_reads_module
import runbooks.cli as runbooks_module

LATE = str(Path(__file__).parents[2] / "sample_logs/classes/m03-late-write/ledger")


def fails(*_, **__):
    raise RuntimeError("a fault")


@pytest.mark.parametrize("command", [["query", "foreign-reads"], ["explain", "victim"], ["gaps"]])
def test_a_fault_of_forensics_ends_as_broken(command, monkeypatch, capsys):
    monkeypatch.setattr(ask_module, "envelope", fails)
    monkeypatch.setattr("sys.argv", ["forensics", *command, "--ledger", LATE])
    with pytest.raises(SystemExit) as ended:
        cli_module.main()
    assert ended.value.code == 3
    told = capsys.readouterr().err
    assert "RuntimeError: a fault" in told and "a fault of this program, not an answer" in told


def test_a_fault_of_a_runbook_command_ends_as_broken(monkeypatch, capsys):
    monkeypatch.setattr(runbooks_module, "cli", fails)
    with pytest.raises(SystemExit) as ended:
        runbooks_module.main()
    assert ended.value.code == 3
    assert "a fault of this program" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["query", "foreign-reads"], ["query", "donors"], ["explain", "victim"]])
def test_memory_that_does_not_suffice_for_judging_is_said(command, monkeypatch):
    def too_much(*_, memory_limit, **__):
        raise duckdb.OutOfMemoryException(memory_limit)

    monkeypatch.setattr(foreign_reads_module, "run_sql", too_much)
    done = CliRunner().invoke(cli_module.cli, [*command, "--ledger", LATE, "--anew"])
    assert done.exit_code == 3
    assert "judging by SQL needs more than 4GB of memory" in done.output and "--engine replay" in done.output
