"""The `console` command: what it imports, refuses, and prints."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from console.cli import EXIT_USAGE, cli
from console.core.ledger_names import ledger_names
from console.core.printable import printable


def run(*arguments: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "console.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


@pytest.mark.parametrize("arguments", [["--help"], ["web", "--help"]])
def test_help_imports_no_screens_no_server_no_torch(arguments):
    code = (
        "import sys\nfrom console.cli import main\n"
        f"sys.argv = ['console', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'torch', 'textual', 'fastapi', 'duckdb', 'plotly', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "--ledger" in done.stdout


def test_the_core_and_the_screens_import_no_torch_and_the_core_no_screens():
    code = (
        "import sys\nimport console.core.desk, console.core.page_map, console.core.plain, console.core.source\n"
        "heavy = {'torch', 'textual', 'fastapi'} & set(sys.modules)\nassert not heavy, heavy\n"
        "import console.tui.app, console.web.app\nassert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--ledger DIR is missing"),
        (["--ledger", "nowhere"], "no such directory"),
        (["web", "--ledger", "nowhere"], "no such directory"),
        (["--ledger", "."], "holds no ledger"),
        (["--bogus"], "No such option"),
        (["web", "--port", "99999", "--ledger", "."], "99999 is not in the range"),
        (["--ledger", ".", "web"], "options go behind the command"),
    ],
)
def test_wrong_usage_ends_with_64_and_words(arguments, words, tmp_path):
    done = run(*arguments, cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    assert done.returncode == EXIT_USAGE
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_without_a_terminal_it_says_what_to_use_instead(here):
    done = CliRunner().invoke(cli, ["--ledger", str(here)])
    assert done.exit_code == EXIT_USAGE
    assert "--plain" in done.output


def test_plain_words(here, text_snapshot, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    done = CliRunner().invoke(cli, ["--ledger", str(here), "--plain"])
    assert done.exit_code == 0
    assert done.output == text_snapshot


def test_plain_words_of_an_incident(here, finished, text_snapshot, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    incident = next(i for i in finished.incidents if i.cause == "M3")
    done = CliRunner().invoke(cli, ["--ledger", str(here), "--plain", "--incident", incident.id])
    assert done.exit_code == 0
    assert done.output == text_snapshot
    assert all(printable(line) == line for line in done.output.splitlines())


def test_an_unknown_incident_names_those_that_are_there(here, finished):
    done = CliRunner().invoke(cli, ["--ledger", str(here), "--plain", "--incident", "I-none"])
    assert done.exit_code == EXIT_USAGE
    assert all(incident.id in done.output for incident in finished.incidents)


@pytest.mark.parametrize("command", [[], ["web"]])
def test_one_ledger_given_twice_is_refused(here, command):
    done = CliRunner().invoke(cli, [*command, "--ledger", str(here), "--ledger", str(here)])
    assert done.exit_code == EXIT_USAGE
    assert "one ledger was given twice" in done.output


def test_ledgers_of_one_name_go_by_as_many_parents_as_tell_them_apart(tmp_path):
    given = [tmp_path / each for each in ("storm/ledger", "quiet/ledger", "west/storm/ledger", "own")]
    assert ledger_names(given) == (f"{tmp_path.name}/storm/ledger", "quiet/ledger", "west/storm/ledger", "own")
    assert ledger_names([given[0]]) == ("ledger",)
    assert len(set(ledger_names([given[0], given[0]]))) == 1
